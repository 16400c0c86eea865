"""Do executors see both sides? One small job, in which each opens the bucket and logs in to the target. Nothing is written."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from storage_consumer.config.secrets import names_of, remove_secrets, write_secrets
from storage_consumer.config.settings import Downstream, Secrets, Tuning, Upstream
from storage_consumer.downstream.connection import connect
from storage_consumer.spark.concurrency import is_one_process
from storage_consumer.spark.errors import meaning_of
from storage_consumer.spark.executors import at_executor, opened, see_packages, ship, with_certificates
from storage_consumer.spark.session import close_session, open_session


def executors_see(
    tuning: Tuning, upstream: Upstream | None, downstream: Downstream | None, secrets: Secrets
) -> tuple[str, ...]:
    """Return the hosts of the executors that see the bucket and the target, as far as these are given.

    Starts a session, and stops it again if it is its own. Raises the error of the first executor that fails, as a job of a round does.
    """
    session, is_ours = open_session(tuning)
    place = write_secrets(secrets)
    try:
        return _hosts(session, upstream, downstream and with_certificates(downstream), place, names_of(secrets))
    except (Py4JError, PySparkException) as fault:
        raise meaning_of(fault) from fault
    finally:
        remove_secrets(place)
        if is_ours:
            with suppress(Py4JError, OSError):
                close_session(session)


def _hosts(
    session: SparkSession, upstream: Upstream | None, downstream: Downstream | None, place: str, held: tuple[str, ...]
) -> tuple[str, ...]:
    context = session.sparkContext
    cores = max(2, context.defaultParallelism)

    def look(_: Iterable[int]) -> Iterator[str]:
        see_packages()
        with at_executor(place, held) as secrets:
            if upstream is not None:
                opened(upstream, secrets).check()
            if downstream is not None:
                connect(downstream, secrets.password).close()
        return iter([socket.gethostname()])

    if not is_one_process(context):
        ship(context)
    return tuple(sorted(set(context.parallelize(range(cores), cores).mapPartitions(look).collect())))
