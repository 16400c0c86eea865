"""Rows of a copy that the target refuses: they stay in the quarantine behind the load, and are tried again as those of files are."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from storage_consumer import Consumer, RoundSummary
from storage_consumer.checkpoint.tables import StoredLoads
from storage_consumer.cli.main import main as command
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, SmallBucket, row, ts
from tests.harness.small_export import export

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
_ENUM = "  `id` int NOT NULL,\n  `name` enum('one','two') DEFAULT NULL,\n  PRIMARY KEY (`id`)"
_ADD_INDEX = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A bucket, a target, and a folder for exports."""

    server: DatabaseServer
    bucket: SmallBucket
    folder: Path

    def round(self, checkpoint: int, **more: Any) -> RoundSummary:
        """One round of a new consumer up to a tick."""
        self.bucket.metadata(ts(checkpoint))
        upstream, downstream, rules = self.bucket.uri, self.server.uri, ["d.*"]
        with Consumer(
            upstream_uri=upstream, downstream_uri=downstream, config=CONFIG, quarantine=rules, **more
        ) as consumer:
            return consumer.run_once()

    def say(self, *words: str) -> str:
        """Run a command of an operator; what it printed."""
        with redirect_stdout(io.StringIO()) as said:
            assert command([*words, "--downstream-uri", self.server.uri]) == 0
        return said.getvalue()

    def load(self, tick: int, rows: str, *more: str) -> None:
        """Request that d.a is loaded from a new export as of a tick."""
        folder = export(self.folder / f"export{tick}", tick, {"a": [rows]})
        self.say("load", "--table", "d.a", "--dump", folder.as_uri(), *more)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What the table holds."""
        return list(self.server.query("SELECT * FROM d.a ORDER BY id"))

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What the quarantine holds."""
        found: list[dict[str, Any]] = json.loads(self.say("quarantine", "list", "--json"))["rows"]
        return found

    @property
    def phases(self) -> list[str]:
        """How far the loads are."""
        return [phase for (phase,) in self.server.query("SELECT phase FROM storage_consumer.table_load")]


@pytest.fixture
def empty(mariadb: DatabaseServer, tmp_path: Path) -> Scene:
    """A bucket without a file."""
    return Scene(server=mariadb, bucket=SmallBucket(root=tmp_path / "bucket"), folder=tmp_path)


@pytest.fixture
def scene(empty: Scene) -> Scene:
    """Table d.a with the row 1, up to tick 5, whose column `name` is too short in the target from now on."""
    empty.bucket.create("d.a")
    empty.bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    empty.round(5)
    empty.server.query("ALTER TABLE d.a MODIFY name VARCHAR(5)")
    return empty


def test_of_the_copy_that_a_feed_begins_with(empty: Scene) -> None:
    """Its row stays in the quarantine with the copy's TSO, and a retry writes it, though no schema file has shown the table."""
    folder = export(empty.folder / "full", 20, {"a": ["(1,''),\n(2,'two')"]}, body=_ENUM)
    assert empty.round(40, dump=folder.as_uri(), start_ts=1).quarantined == {"d.a": 1}
    assert (empty.rows, empty.phases) == ([(2, "two")], ["done"])
    (entry,) = empty.entries
    assert (entry["key"], entry["commit_ts"], entry["path"]) == ("id = 1", ts(20), "d.a.000000000.sql")
    empty.server.query("ALTER TABLE d.a MODIFY name ENUM('one', 'two', '')")
    empty.say("quarantine", "retry", "--all")
    assert not empty.round(40).quarantined
    assert (empty.rows, empty.entries) == ([(1, ""), (2, "two")], [])


def test_of_a_later_copy(scene: Scene) -> None:
    """Likewise where the table is loaded while the feed runs; a change of its key that comes later removes the entry."""
    scene.load(20, "(1,'one'),\n(2,'too long'),\n(3,'too long')", "--replace")
    scene.round(30)
    assert {entry["key"]: entry["commit_ts"] for entry in scene.entries} == {"id = 2": ts(20), "id = 3": ts(20)}
    scene.bucket.rows("d.a", 2, row("d.a", 33, "3", '"new"', operation="U"))
    scene.round(40)
    assert [entry["key"] for entry in scene.entries] == ["id = 2"]
    scene.server.query("ALTER TABLE d.a MODIFY name VARCHAR(20)")
    scene.say("quarantine", "retry", "--all")
    assert not scene.round(50).quarantined
    assert scene.rows == [(1, "one"), (2, "too long"), (3, "new")]


def test_not_after_a_statement(scene: Scene) -> None:
    """A row of a copy has the structure as of the copy: once a statement has changed the table, it is not tried again."""
    scene.load(20, "(1,'one'),\n(2,'too long')", "--replace")
    scene.round(30)
    scene.bucket.schema("d.a", ts(35), "ALTER TABLE `a` ADD INDEX `i` (`name`)", _ADD_INDEX)
    scene.server.query("ALTER TABLE d.a MODIFY name VARCHAR(20)")
    assert scene.round(40).halted == ()
    scene.say("quarantine", "retry", "--all")
    scene.round(40)
    (entry,) = scene.entries
    assert "a statement has changed the table since" in entry["retry_answer"]


def test_what_the_copy_replaces_ends_when_the_load_begins(scene: Scene) -> None:
    """An older refused row is not written among those of the copy, whose source has deleted it, though somebody asked for it."""
    scene.bucket.rows("d.a", 2, row("d.a", 6, "2", '"too long"'))
    scene.round(7)
    assert [entry["key"] for entry in scene.entries] == ["id = 2"]
    scene.say("table", "pause", "--table", "d.a")
    scene.bucket.rows("d.a", 3, row("d.a", 8, "2", '"too long"', operation="D"))
    scene.round(10)
    scene.server.query("ALTER TABLE d.a MODIFY name VARCHAR(20)")
    scene.load(20, "(3,'three')", "--replace")
    scene.say("quarantine", "retry", "--all")
    scene.round(30)
    assert (scene.rows, scene.entries) == ([(3, "three")], [])


def test_retries_wait_for_the_end_of_the_load(scene: Scene) -> None:
    """While a copy is written, its refused rows wait, whatever the program's end and a pause come between."""
    scene.load(20, "(1,'one'),\n(2,'too long')", "--replace")
    with patch.object(StoredLoads, "finish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        scene.round(30)
    scene.server.query("ALTER TABLE d.a MODIFY name VARCHAR(20)")
    scene.say("quarantine", "retry", "--all")
    scene.say("load", "pause", "--table", "d.a")
    scene.round(30)
    assert (scene.rows, scene.phases) == ([(1, "one")], ["loading"])
    assert [entry["retry_answer"] for entry in scene.entries] == [""]
    scene.say("load", "resume", "--table", "d.a")
    scene.round(30)
    scene.round(31)
    assert (scene.rows, scene.entries) == ([(1, "one"), (2, "too long")], [])
