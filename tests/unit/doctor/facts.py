"""Facts of a healthy world, of which a test changes one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from storage_consumer.config.settings import Downstream
from storage_consumer.doctor.state_look import StateFacts
from storage_consumer.doctor.target_look import TargetFacts
from storage_consumer.downstream.server_look import Line, ServerLook, Space, Variables
from storage_consumer.model import TableName
from storage_consumer.spark.surroundings import Java, LocalDir, Surroundings

NOW = 1_790_000_000.0
GIB = 1 << 30


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


def line(**changes: Any) -> Line:
    """A connection to this machine."""
    plain = Line(encrypts=False, verifies=False, is_local=True, round_trip=0.001, ahead=0.0)
    return replace(plain, **changes)


def server(**changes: Any) -> ServerLook:
    """A server that has all that is needed."""
    plain = ServerLook(
        variables=variables(),
        line=line(),
        connections=1,
        knows_zone=False,
        has_collation=True,
        grants={},
        missing={},
        passes_read_only=False,
        triggers=(),
        events=(),
        references=(),
        space=Space(used=0, free=None),
    )
    return replace(plain, **changes)


def target(
    names: tuple[str, ...] = ("d.a",), downstream: Downstream | None = None, size: int = 0, **changes: Any
) -> TargetFacts:
    """What is asked of it."""
    parts = (name.split(".") for name in names)
    return TargetFacts(
        server=server(**changes),
        downstream=downstream or Downstream(host="db"),
        workers=16,
        local_infile=True,
        names=tuple(TableName(schema=schema, table=table) for schema, table in parts),
        size=size,
    )


def surroundings(**changes: Any) -> Surroundings:
    """A machine that suits Spark."""
    plain = Surroundings(
        pyspark="4.1.0",
        java=Java(home="", program="/usr/bin/java", version=17),
        cores=4,
        memory=8 * GIB,
        available=4 * GIB,
        local_dirs=(LocalDir(path="/var/spark", is_writable=True, free=9 * GIB),),
    )
    return replace(plain, **changes)


def state(**changes: Any) -> StateFacts:
    """A target without a state."""
    return replace(StateFacts(schema="storage_consumer", reach=("--downstream-uri", "mysql://db/"), now=NOW), **changes)
