"""Other users of the machine get nothing of what runs: no port, no socket, no file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.intruder import as_nobody, asking_for, calling, obeyed, ports_of, readable, sockets_of, speaks, taken
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


@contextmanager
def following(server: DatabaseServer, home: Path, **environment: str) -> Iterator[Program]:
    """The program after its first rows, with no mask of its own for what it makes."""
    home.mkdir(exist_ok=True)
    small = SmallBucket(root=home / "bucket")
    small.create("d.a")
    small.rows("d.a", 1, row("d.a", 5, "1", '"one"'))
    small.metadata(ts(9))
    config = home / "changefeed.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    arguments = ["--upstream-uri", small.uri, "--downstream-uri", server.uri, "--config", str(config)]
    open_to_all = ("bash", "-c", 'umask 0; exec "$@"', "bash")
    with program(arguments, home / "output", within=open_to_all, environment=environment) as running:
        running.wait_for("round_finished", rows=1)
        yield running


def all_taken(ports: Iterable[int], body: bytes) -> list[bool]:
    """Where of these ports Spark does what it is asked."""
    return [taken(port, body) for port in ports]


def everybody(running: Program) -> set[int]:
    """The program, Spark's JVM and the workers."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # no process, or one that has just ended
            if os.getsid(pid := int(entry.name)) == running.process.pid:
                found.add(pid)
    return found


def test_nobody_gets_in(mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """What another user asks of Spark, blocks and Java objects, is refused at each port; a session that keeps nobody out does it (S4)."""
    context = spark.sparkContext
    block = asking_for(f"broadcast_{context.broadcast([1])._jbroadcast.id()}_piece0")
    call = calling(spark)
    open_ports = ports_of([context._gateway.proc.pid])  # type: ignore[union-attr] # there is one
    for body in (block, call):
        assert sum(as_nobody(partial(all_taken, open_ports, body))) == 1
    with following(mariadb, tmp_path / "home") as running:
        ports = ports_of(everybody(running))
        assert len(ports) >= 3, "Py4J's gateway, the driver and its blocks"
        for body in (block, call):
            assert not any(as_nobody(partial(all_taken, ports, body)))
        assert not any(as_nobody(lambda: [obeyed(port) for port in ports]))


def test_nobody_reads(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """No socket lets another user in, and no file of the program, of Spark or of its workers can be read, the driver's own included (S4)."""
    with following(mariadb, tmp_path / "home") as running:
        processes = everybody(running)
        sockets = sockets_of(processes)
        assert not any(as_nobody(lambda: [speaks(path) for path in sorted(sockets)]))
        ours = sorted(files_of(processes) | {f"/proc/{pid}/{name}" for pid in processes for name in ("environ", "fd")})
        assert as_nobody(lambda: [path for path in ours if readable(path)]) == []
        words = "\0".join(_told_to(pid) for pid in processes)
        assert "spark.authenticate=true" in words
        assert "authenticate.secret" not in words
        assert "AUTH_SECRET" not in words


def files_of(processes: set[int]) -> set[str]:
    """All files and folders in the folder of the program, and in those of Spark that are noted there."""
    sockets = sockets_of(processes)
    (own,) = {Path(path).parent for path in sockets}
    folders = [own, *(link.readlink() for link in own.glob("leftover-*"))]
    assert len(folders) > 1
    return {str(path) for folder in folders for path in (folder, *folder.rglob("*"))}


def _told_to(pid: int) -> str:
    """Command line and environment of a process; empty where it has just ended."""
    with suppress(OSError):
        return "".join(
            Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ")
        )
    return ""
