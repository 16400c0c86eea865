"""Retries of quarantined rows: they write what a job would write, before a statement that waits too, and nothing else."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from storage_consumer import Consumer, RoundSummary
from storage_consumer.checkpoint.journal import StoredJournal
from storage_consumer.cli.main import main as command
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, ID_NAME, SmallBucket, column, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
_TRUNCATE, _MODIFY = 11, 12
_MORE = (*ID_NAME, column("more", "DECIMAL", ColumnPrecision="10", ColumnScale="2"))
_BODY = "id INT PRIMARY KEY, name VARCHAR(20), more DECIMAL(10, 2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Table d.a with the row 1, and the row 2 in the quarantine, since the column `name` is too short in the target."""

    server: DatabaseServer
    bucket: SmallBucket

    def round(self, checkpoint: int) -> RoundSummary:
        """One round of a new consumer up to a tick."""
        self.bucket.metadata(ts(checkpoint))
        upstream, downstream = self.bucket.uri, self.server.uri
        with Consumer(upstream_uri=upstream, downstream_uri=downstream, config=CONFIG, quarantine=["d.*"]) as consumer:
            return consumer.run_once()

    def say(self, *words: str) -> str:
        """Run a command of an operator; what it printed."""
        with redirect_stdout(io.StringIO()) as said:
            assert command([*words, "--downstream-uri", self.server.uri]) == 0
        return said.getvalue()

    def widen(self) -> None:
        """Have the target take the refused row."""
        self.server.query("ALTER TABLE d.a MODIFY name VARCHAR(20)")

    @property
    def rows(self) -> Sequence[tuple[Any, ...]]:
        """What the table holds."""
        return [(key, name) for key, name, *_ in self.server.query("SELECT * FROM d.a ORDER BY id")]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What the quarantine holds."""
        found: list[dict[str, Any]] = json.loads(self.say("quarantine", "list", "--json"))["rows"]
        return found


@pytest.fixture
def scene(mariadb: DatabaseServer, tmp_path: Path) -> Scene:
    """The scene, up to tick 5."""
    found = Scene(server=mariadb, bucket=SmallBucket(root=tmp_path / "bucket"))
    found.bucket.schema("d", ts(0), "CREATE DATABASE `d`", 1)
    found.bucket.schema("d.a", ts(1), f"CREATE TABLE `a` ({_BODY})", 3, _MORE)
    found.bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"', '"1.00"'))
    found.round(3)
    mariadb.query("ALTER TABLE d.a MODIFY name VARCHAR(5)")
    found.bucket.rows("d.a", 2, row("d.a", 4, "2", '"too long"', '"1.25"'))
    found.round(5)
    assert [entry["key"] for entry in found.entries] == ["id = 2"]
    return found


def test_before_a_statement_that_waits(scene: Scene) -> None:
    """A statement waits for the rows in the quarantine, and a retry, as its message says, lets it go on."""
    longer = (column("id", "BIGINT", key=True), *_MORE[1:])
    scene.bucket.schema("d.a", ts(6), "ALTER TABLE `d`.`a` MODIFY `id` BIGINT", _MODIFY, longer)
    halted = scene.round(7).halted
    assert "quarantine retry --table d.a" in halted[0].error
    scene.widen()
    scene.say("quarantine", "retry", "--table", "d.a")
    scene.say("table", "resume", "--table", "d.a")
    assert scene.round(7).halted == ()
    assert (scene.entries, scene.rows) == ([], [(1, "one"), (2, "too long")])
    assert scene.server.query("SELECT data_type FROM information_schema.columns WHERE column_name = 'id' AND table_schema = 'd'") == (("bigint",),)  # fmt: skip


def test_pushes_out_no_other_row(scene: Scene) -> None:
    """In a table that got a unique key of its own, a retry could replace another row: it is refused, as rows of files are."""
    scene.widen()
    scene.server.query("UPDATE d.a SET name = 'too long'")
    scene.server.query("ALTER TABLE d.a ADD UNIQUE KEY mine (name)")
    scene.say("quarantine", "retry", "--all")
    scene.round(5)
    assert scene.rows == [(1, "too long")]
    assert "somebody changed the target's table" in scene.entries[0]["retry_answer"]


def test_rounds_no_value(scene: Scene) -> None:
    """A value that the target would change without a word is not written by a retry either."""
    scene.widen()
    scene.server.query("ALTER TABLE d.a MODIFY more DECIMAL(10, 1)")
    scene.say("quarantine", "retry", "--all")
    scene.round(5)
    assert scene.rows == [(1, "one")]
    assert "more than 1 digits after the point" in scene.entries[0]["retry_answer"]


def test_refused_again_shows_no_value(scene: Scene) -> None:
    """The reason after a retry is what the server said, without the row's values."""
    reason = scene.entries[0]["reason"]
    scene.say("quarantine", "retry", "--all")
    scene.round(5)
    (entry,) = scene.entries
    assert (entry["reason"], entry["retry_answer"]) == (reason, "refused again")


def test_not_beside_a_statement_that_may_have_run(scene: Scene) -> None:
    """After a crash in the middle of a TRUNCATE, the retry waits for its outcome: the row is not brought back."""
    real = StoredJournal.record

    def record(this: StoredJournal, step: Any, state: str, **named: Any) -> None:
        if state == "done":
            raise KeyboardInterrupt
        real(this, step, state, **named)

    scene.widen()
    scene.bucket.schema("d.a", ts(6), "TRUNCATE TABLE `d`.`a`", _TRUNCATE, _MORE)
    with patch.object(StoredJournal, "record", record), pytest.raises(KeyboardInterrupt):
        scene.round(7)
    assert scene.rows == []
    scene.say("quarantine", "retry", "--all")
    assert scene.round(7).halted == ()
    assert (scene.entries, scene.rows) == ([], [])
