"""The log of a program that is busy for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.test_ddl_verbs import WIDER
from tests.harness.locks import lock
from tests.harness.program import program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.slow]
WIDEN = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR(20)"


def test_a_long_round_and_a_long_statement_are_told(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """After 30 seconds of a write that waits for a lock, and of a statement that does, a line says how far it is, and which statement."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    bucket.metadata(ts(3))
    arguments = [*run_arguments(bucket, mariadb), "--flush-interval", "200ms", "--ddl-lock-wait", "50s"]
    with program(arguments, tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(3))
        with lock(mariadb, "d.a", 2):
            bucket.rows("d.a", 2, row("d.a", 5, "2", '"two"'))
            bucket.metadata(ts(6))
            told = running.wait_for("round_progress")
        assert (told["phase"], told["files_done"], told["files"], told["storage_checkpoint"]) == ("rows", 0, 1, ts(6))
        assert told["seconds"] >= 30
        running.wait_for("round_finished", checkpoint=ts(6))
        with lock(mariadb, "d.a", 3):
            bucket.schema("d.a", ts(7), WIDEN, 5, WIDER)
            bucket.metadata(ts(9))
            told = running.wait_for("round_progress", phase="statement")
        assert (told["table"], told["version"], told["query"], told["statements"]) == ("d.a", ts(7), WIDEN, 1)
        assert told["statement_seconds"] >= 30
        running.wait_for("round_finished", checkpoint=ts(9))
        assert len(running.events("round_progress")) == 2
        assert len(running.events("table_waiting")) <= 2
