"""``--quarantine`` as a process of its own: a row that the target refuses goes aside, everything says so, and a retry cures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
QUARANTINE = ("--quarantine", "d.*", "--quarantine", "!d.c", "--flush-interval", "200ms")
RENAME = 14
TRUNCATE = 11


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Three tables with a row each, up to tick 3."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b", "d.c")
    for table in ("d.a", "d.b", "d.c"):
        found.rows(table, 1, row(table, 2, "1", '"one"'))
    found.metadata(ts(3))
    return found


def narrow(server: DatabaseServer) -> None:
    """Somebody makes the columns shorter than the source has them."""
    for table in ("a", "b", "c"):
        server.query(f"ALTER TABLE d.{table} MODIFY name VARCHAR(5)")


def rows(server: DatabaseServer, table: str) -> list[tuple[object, ...]]:
    """What a table holds."""
    return list(server.query(f"SELECT id, name FROM d.{table} ORDER BY id"))


def test_statements(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A rename waits for the rows of its table, a TRUNCATE removes them; `drop` gives them up, and needs --yes."""
    with program([*run_arguments(bucket, mariadb), *QUARANTINE], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        narrow(mariadb)
        for table in ("d.a", "d.b"):
            bucket.rows(table, 2, row(table, 5, "2", '"too long"'))
        bucket.metadata(ts(6))
        running.wait_for("row_quarantined", table="d.b")
        bucket.schema("d.b", ts(7), "TRUNCATE TABLE `b`", TRUNCATE)
        bucket.schema("d.z", ts(7), "RENAME TABLE `d`.`a` TO `d`.`z`", RENAME)
        bucket.metadata(ts(9))
        halted = running.wait_for("table_halted")
        assert "quarantine retry --table d.a" in str(halted["error"])
        running.wait_for("ddl_finished", table="d.b")
        assert [
            each["table"] for each in json.loads(command("quarantine", "--json", server=mariadb).stdout)["rows"]
        ] == ["d.a"]
        assert "add --yes" in command("quarantine", "drop", "--table", "d.a", server=mariadb).stderr
        assert command("quarantine", "drop", "--table", "d.a", "--yes", server=mariadb).returncode == 0
        assert command("table", "resume", "--table", "d.z", server=mariadb).returncode == 0
        running.wait_for("ddl_finished", version=ts(7), table="d.z")
        assert rows(mariadb, "z") == [(1, "one")]
