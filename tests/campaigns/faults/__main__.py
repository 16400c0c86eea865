"""``python -m tests.campaigns.faults``: a small workload under every fault, as a table: fault, where, outcome, data equal.

The workload (see `workload`) is applied while something goes wrong: at the target (a proxy that knows the protocol breaks the
connection at any command, other connections hold locks, the server is killed, read-only, its disk full), at an S3 store (a proxy
spoils its answers), in Spark (processes are killed). Where the program ends by it, it is started again. Then rows, tables and
state must be what they have to be, and the outcome what is promised: it goes on by itself while the fault passes in time, else it
ends with code 1 and an error that says what to do.

Exit code 0 when every line is as promised, 1 when one is not, 2 when no fault is called as asked for.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.faults import disk, spark, stores, target
from tests.campaigns.faults.connections import lost_connections
from tests.campaigns.faults.trial import Fault, Line, World
from tests.campaigns.faults.wire import Wire
from tests.harness.choosing import words
from tests.harness.faulty_proxy import FaultyProxy
from tests.harness.local_spark import local_spark
from tests.harness.s3_server import s3_server
from tests.harness.servers import SERVERS, DatabaseServer

INSTANTS = 60
HEAD = "| fault | where | outcome | data equal |\n|---|---|---|---|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the table is to show."""

    kind: str
    """Of the server."""
    only: Sequence[str]
    """Parts of names of groups or faults; empty: all."""
    instants: int
    """At which connections are lost; 0: all."""
    seed: int
    folder: Path

    def wants(self, group: str, name: str = "") -> bool:
        """Whether a group, or a fault of it, was asked for."""
        return not self.only or any(re.search(one, f"{group}: {name}", re.IGNORECASE) for one in self.only)

    def tried(self, group: str, faults: Iterable[Fault], world: World) -> Iterator[Line]:
        """The lines of those that were asked for."""
        return (fault(world) for fault in faults if self.wants(group, fault.name))


def of_connections(asked: Asked) -> Iterator[Line]:
    """Connections that are lost at any command."""
    if asked.wants("connections", "connection lost"):
        with ExitStack() as stack:
            yield from lost_connections(_world(asked, stack), asked.instants, asked.seed)


def of_target(asked: Asked) -> Iterator[Line]:
    """The server, and what other connections do."""
    with ExitStack() as stack:
        yield from asked.tried("target", target.faults(), _world(asked, stack))


def of_disk(asked: Asked) -> Iterator[Line]:
    """A server on a small disk; a TiDB of the tests' kind needs no new room for what is written here."""
    if asked.kind == "tidb":
        return
    folder = asked.folder / "disk"
    with ExitStack() as stack:
        world = _world(asked, stack, stack.enter_context(disk.server_on(folder, asked.kind)))
        world.wide = disk.WIDE
        yield from asked.tried("disk", disk.faults(folder), world)


def of_stores(asked: Asked) -> Iterator[Line]:
    """An S3 store."""
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        proxy = stack.enter_context(FaultyProxy(server.endpoint))
        world = _world(asked, stack)
        yield from asked.tried("s3", stores.faults(stores.Store(server=server, proxy=proxy)), world)


def of_spark(asked: Asked) -> Iterator[Line]:
    """Spark in this process."""
    with ExitStack() as stack:
        yield from asked.tried("spark", spark.faults(), _world(asked, stack))


GROUPS: dict[str, Callable[[Asked], Iterator[Line]]] = {
    "connections": of_connections,
    "target": of_target,
    "disk": of_disk,
    "s3": of_stores,
    "spark": of_spark,
}


def _world(asked: Asked, stack: ExitStack, server: DatabaseServer | None = None) -> World:
    """A server of its own for one group, unless it is given."""
    server = server or stack.enter_context(SERVERS[asked.kind](options=target.OPTIONS[asked.kind]))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.folder)))
    return World(server=server, wire=stack.enter_context(Wire(server.port)), folder=folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    given = _parser().parse_args(arguments)
    lines = list[Line]()
    with tempfile.TemporaryDirectory(prefix="faults-") as name, local_spark() as session:
        session.sparkContext.setLogLevel("OFF")
        asked = Asked(
            kind=given.server,
            only=words(given.only),
            instants=0 if given.all else given.instants,
            seed=given.seed,
            folder=Path(name),
        )
        print(HEAD, flush=True)
        for group in given.groups.split(","):
            for line in GROUPS[group](asked):
                print(line, flush=True)
                lines.append(line)
    broken = sum(not line.kept for line in lines)
    print(f"\n{given.server}: {len(lines)} lines, {broken} not as promised, seed {given.seed}")
    return 2 if not lines else 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.faults", description="Faults, and what comes of them."
    )
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    parser.add_argument("--groups", default=",".join(GROUPS), help="comma-separated; default: all")
    parser.add_argument("--only", default="", help="comma-separated parts of the faults' names; default: all")
    parser.add_argument("--instants", type=int, default=INSTANTS, help="commands at which the connection is lost")
    parser.add_argument("--all", action="store_true", help="lose it at every command; takes hours")
    parser.add_argument("--seed", type=int, default=0, help="which commands these are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
