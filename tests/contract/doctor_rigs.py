"""A healthy bucket, target and machine for `doctor`, and how a planted fault is held against what it finds."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.cli.doctor_command import doctor_input
from storage_consumer.driver.lease import identity
from storage_consumer.operating.checks import GROUPS, Finding, Verdict, examined
from storage_consumer.session import Session
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, SmallBucket, row

PLAIN = "plain"
ALARMS = (Verdict.WARN, Verdict.FAIL)
NO_MORE: tuple[str, ...] = ()


@contextmanager
def silent_port() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def now_ts(seconds: float = 0.0) -> int:
    """The TSO of this moment, and so many seconds later."""
    return int((time.time() + seconds) * 1000) << 18


@dataclass(slots=True, kw_only=True)
class Scene:
    """What is examined; a fault changes it."""

    server: DatabaseServer
    bucket: SmallBucket
    options: dict[str, object] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    groups: tuple[str, ...] = tuple(GROUPS)

    def examine(self) -> Mapping[str, Finding]:
        """What each check finds."""
        found = examined(doctor_input(Session(self.options, self.environ)), self.groups)
        return {each.check: each for each in found}

    def alarms(self) -> dict[str, Finding]:
        """Those that warn or fail."""
        return {name: finding for name, finding in self.examine().items() if finding.verdict in ALARMS}

    def sql(self, *statements: str) -> None:
        """Run statements as an administrator."""
        for statement in statements:
            self.server.query(statement)

    def as_plain(self, *rights: str) -> None:
        """Examine as a user with these rights."""
        self.sql(f"CREATE USER {PLAIN}@'%'", *(f"GRANT {each} TO {PLAIN}@'%'" for each in rights))
        self.options["downstream_uri"] = f"mysql://{PLAIN}@127.0.0.1:{self.server.port}/"

    def state(self, upstream: str = "") -> StateStore:
        """A state of the bucket, owned by this process; closed by whoever asks."""
        given = doctor_input(Session(self.options, self.environ))
        found = StateStore(given.config.downstream, "")
        found.open(upstream or given.config.upstream.identity)
        assert found.lease.acquire(identity(time.time()), 30) == ""
        return found


def scene(server: DatabaseServer, folder: Path) -> Scene:
    """A bucket with two tables that is a moment old, a target without any database, and this machine."""
    bucket = SmallBucket(root=folder / "bucket")
    bucket.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    bucket.rows("d.a", 2, row("d.a", 3, "2", '"two"'))
    bucket.metadata(now_ts())
    options: dict[str, object] = {
        "upstream_uri": bucket.uri,
        "downstream_uri": server.uri,
        "config": CONFIG,
        "tz": "UTC",
    }
    return Scene(server=server, bucket=bucket, options=options)


Plant = Callable[[Scene], AbstractContextManager[object] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, and what `doctor` has to say of it."""

    name: str
    check: str
    verdict: Verdict
    says: tuple[str, ...]
    """Parts of its line, remedy or statements."""
    plant: Plant
    also: tuple[str, ...] = NO_MORE
    """Other checks that notice the same fault."""
    kind: str = "mariadb"

    def __str__(self) -> str:
        """Its name."""
        return self.name


def named(fault: Fault, found: Mapping[str, Finding]) -> None:
    """See that the fault is named by its check, with its remedy, and that nothing else is."""
    assert {*found} == {fault.check, *fault.also}, {name: each.text for name, each in found.items()}
    finding = found[fault.check]
    assert finding.verdict is fault.verdict, finding
    text = "\n".join((finding.text, finding.remedy, *finding.statements))
    assert [part for part in fault.says if part not in text] == [], text


def planted_and_mended(fault: Fault, there: Scene) -> None:
    """See that the fault is named; and, where the remedy is statements, that nothing is found once they were run."""
    with fault.plant(there) or nullcontext():
        found = there.alarms()
        named(fault, found)
        if statements := found[fault.check].statements:
            there.sql(*statements)
            assert there.alarms() == {}


def fault(name: str, check: str, verdict: Verdict, says: str | tuple[str, ...], plant: Plant, **more: object) -> Fault:
    """A line of a table of faults."""
    parts = (says,) if isinstance(says, str) else says
    return Fault(name=name, check=check, verdict=verdict, says=parts, plant=plant, **more)  # type: ignore[arg-type]
