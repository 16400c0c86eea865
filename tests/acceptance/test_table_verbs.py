"""``storage-consumer table`` as a process of its own, beside a consumer that runs; and a state that is dropped under one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
STATE = "storage_consumer"


def test_state_that_is_dropped_and_made_anew(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """The program ends with code 1 and says what happened; a new state goes on with the tables as they are, altered ones too."""
    bucket.schema("d.a", ts(4), "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)", 5, WIDER)
    bucket.rows("d.a", 1, row("d.a", 5, "2", '"two"', '"n"'), version=ts(4))
    bucket.metadata(ts(9))
    arguments = run_arguments(bucket, mariadb)
    with program([*arguments, "--flush-interval", "200ms", "--lease-ttl", "3s"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        mariadb.query(f"DROP DATABASE {STATE}")
        failed = running.wait_for("failed")
        assert "the state schema storage_consumer was dropped" in str(failed["error"])
        assert (failed["exit_code"], running.end()) == (1, 1)
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")
    bucket.rows("d.b", 2, row("d.b", 12, "2", '"two"'))
    bucket.rows("d.a", 2, row("d.a", 12, "3", '"three"', '"n"'), version=ts(4))
    bucket.metadata(ts(13))
    once = [*arguments, "--once"]
    with program(once, tmp_path / "second") as running:
        assert running.end() == 4
    assert command("ddl", "done", "--table", "d", "--version", str(ts(0)), server=mariadb).returncode == 0
    with program(once, tmp_path / "third") as running:
        assert "table reload-done --table d.a --at TSO" in str(running.wait_for("table_halted", table="d.a")["error"])
        assert running.end() == 4
    for table in ("d.a", "d.b"):
        decided = command("table", "reload-done", "--table", table, "--at", str(ts(9)), server=mariadb)
        assert (decided.returncode, decided.stderr) == (0, "")
    with program(once, tmp_path / "fourth") as running:
        assert running.end() == 0
    assert mariadb.query("SELECT * FROM d.a ORDER BY id") == ((1, "one", None), (2, "two", "n"), (3, "three", "n"))
    assert mariadb.query("SELECT * FROM d.b ORDER BY id") == ((1, "one"), (2, "two"))
