"""Facts of a healthy world, of which a test changes one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from storage_consumer.bucket.inspector import InspectedBucket
from storage_consumer.config.settings import Config, Downstream, Upstream
from storage_consumer.driver.open_copies import OpenCopy
from storage_consumer.model import TableName
from storage_consumer.operating.doctor_facts import Facts, StateFacts
from storage_consumer.surroundings import Java, LocalDir, Surroundings
from storage_consumer.target.database import ServerFacts, ServerLine, Variables
from storage_consumer.watch.report import Snapshot

NOW = 1_790_000_000.0
GIB = 1 << 30
UPSTREAM = Upstream(scheme="s3", root="bucket/prefix", protocol="csv")


def at(seconds: float) -> int:
    """The TSO of so many seconds after now."""
    return int((NOW + seconds) * 1000) << 18


def variables(
    kind: str = "mysql", version: str = "9.7.0", session: dict[str, str] | None = None, **every: str
) -> Variables:
    """A server's settings."""
    plain = {
        "max_allowed_packet": str(64 << 20),
        "local_infile": "ON",
        "max_connections": "151",
        "innodb_page_size": "16384",
    }
    return Variables(server_type=kind, version=version, every={**plain, **every}, session=session or {})


def line(**changes: Any) -> ServerLine:
    """A connection to this machine."""
    plain = ServerLine(encrypts=False, verifies=False, is_local=True, ahead=0.0)
    return replace(plain, **changes)


def bucket(**changes: Any) -> InspectedBucket:
    """An inspected bucket without tables."""
    plain = InspectedBucket(
        place="s3://bucket/prefix", layouts=("new",), architecture="new", index_widths=(20,), dispatchers=False, settings=(),
        tables=(), objects=1, size=0, data_files=0, schema_files=1, sampled=0, checkpoint=at(0), commit_ts=(), versions=(), warnings=(), upstream=UPSTREAM,
    )  # fmt: skip
    return replace(plain, **changes)


def server(**changes: Any) -> ServerFacts:
    """A server that has all that is needed."""
    plain = ServerFacts(
        variables=variables(),
        line=line(),
        connections=1,
        knows_zone=False,
        grants={},
        missing={},
        passes_read_only=False,
        triggers=(),
        events=(),
        references=(),
    )
    return replace(plain, **changes)


def snapshot(**changes: Any) -> Snapshot:
    """A feed of the bucket that is a moment old."""
    plain = Snapshot(
        now=NOW, state_schema="storage_consumer", upstream=UPSTREAM.identity, checkpoint=at(0),
        checkpoint_running=at(0), storage_checkpoint=at(0), writer="", last_writer="",
    )  # fmt: skip
    return replace(plain, **changes)


def surroundings(**changes: Any) -> Surroundings:
    """A machine that suits Spark."""
    plain = Surroundings(
        pyspark="4.1.0",
        java=Java(home="", program="/usr/bin/java", version=17),
        local_dirs=(LocalDir(path="/var/spark", is_writable=True, free=9 * GIB),),
    )
    return replace(plain, **changes)


def facts(names: tuple[str, ...] = ("d.a",), **changes: Any) -> Facts:
    """All of it, and no state."""
    parts = (name.split(".") for name in names)
    known: dict[str, Any] = {
        "config": Config(upstream=UPSTREAM, downstream=Downstream(host="db")),
        "now": NOW,
        "local_infile": True,
        "upstream": UPSTREAM,
        "downstream": Downstream(host="db"),
        "bucket": bucket(),
        "export": OpenCopy(identity="", snapshot=at(-60), origin=UPSTREAM),
        "names": tuple(TableName(schema=schema, table=table) for schema, table in parts),
        "server": server(),
        "state": StateFacts(None),
        "surroundings": surroundings(),
        **changes,
    }
    return cast("Facts", SimpleNamespace(variables=known["server"].variables, **known))


def of_server(names: tuple[str, ...] = ("d.a",), **changes: Any) -> Facts:
    """The same with another server."""
    return facts(names, server=server(**changes))


def with_settings(*args: Any, **every: Any) -> Facts:
    """The same with other settings of the server."""
    return of_server(variables=variables(*args, **every))
