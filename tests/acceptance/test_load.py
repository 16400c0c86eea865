"""`run --dump` and ``storage-consumer load`` as processes of their own: a feed that begins with an export, and a table that gets one later."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.harness.program import command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.small_export import export
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
PARTS, ROWS = 30, 8_000
"""Files of a copy that takes some seconds, and the rows of each."""


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables whose changes begin before the copy at tick 5, up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    found.rows("d.a", 1, row("d.a", 4, "1", '"old"'), row("d.a", 8, "2", '"new"', operation="U"))
    found.rows("d.b", 1, row("d.b", 7, "1", '"new"', operation="U"))
    found.metadata(ts(9))
    return found


def many(part: int) -> str:
    """The rows of one file of a large copy."""
    return ",\n".join(f"({part * ROWS + number},'copy')" for number in range(1, ROWS + 1))


def rows(server: DatabaseServer, table: str) -> dict[int, str]:
    """What a table holds."""
    return dict(server.query(f"SELECT id, name FROM {table}"))


def test_from_an_export_to_a_replica(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """An unfinished export is waited for; a gap is refused with code 2; then the target has the copy and the changes after it."""
    tables = {"a": ["(1,'copy'),\n(2,'copy')", "(3,'copy')"], "b": ["(1,'copy')"]}
    folder = export(tmp_path / "full", 5, tables, finished=False)
    arguments = [*run_arguments(bucket, mariadb), "--dump", folder.as_uri(), "--flush-interval", "200ms"]
    with program([*arguments, "--start-ts", str(ts(5))], tmp_path / "log") as running:
        running.wait_for("export_waiting")
        export(folder, 5, tables)
        running.wait_for("load_finished", table="d.a")
        running.wait_for("round_finished", checkpoint=ts(9))
        assert rows(mariadb, "d.a") == {1: "copy", 2: "new", 3: "copy"}
        assert rows(mariadb, "d.b") == {1: "new"}
    shown = command("load", "--all", server=mariadb)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "d.a  done" in shown.stdout
    assert command("load", server=mariadb).stdout == "no table is being loaded\n2 ended: add --all\n"


def test_a_gap_is_refused(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A start-ts after the copy, or none at all, ends with code 2 and both remedies; the target stays as it was."""
    folder = export(tmp_path / "full", 5, {"a": ["(1,'copy')"]})
    arguments = [*run_arguments(bucket, mariadb), "--dump", folder.as_uri(), "--once"]
    for more, said in (
        (["--start-ts", str(ts(6))], "is later than the copy"),
        ([], "nothing proves that the changefeed began"),
    ):
        with program([*arguments, *more], tmp_path / f"log{len(more)}") as running:
            assert said in str(running.wait_for("failed")["error"])
            assert running.end() == 2
    assert mariadb.query("SHOW DATABASES LIKE 'd'") == ()


def ask(table: str, folder: Path, server: DatabaseServer, *more: str) -> None:
    """Request a load."""
    asked = command("load", "--table", table, "--dump", folder.as_uri(), *more, server=server)
    assert (asked.returncode, asked.stderr) == (0, "")


def test_a_wrong_copy_is_refused(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """One that is too old, and one that lacks the table: the reason is logged and listed, and the tables go on as they were."""
    early = export(tmp_path / "early", 5, {"a": ["(1,'copy')"]})
    with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        for table, why in {"d.a": "pause the table", "d.b": "does not hold the table d.b: it holds d.a"}.items():
            ask(table, early, mariadb)
            assert why in str(running.wait_for("load_refused", table=table)["error"])
        assert command("load", server=mariadb).stdout.count("  refused  nothing was written") == 2
        bucket.rows("d.a", 2, row("d.a", 12, "9", '"new"'))
        bucket.metadata(ts(15))
        running.wait_for("round_finished", checkpoint=ts(15), halted=0)
        assert rows(mariadb, "d.a")[9] == "new"


def test_a_table_is_loaded_while_the_other_goes_on(
    mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path
) -> None:
    """A copy replaces a table's rows; a pause keeps what is written, and the table goes on behind the copy as of its TSO."""
    full = export(tmp_path / "full", 20, {"a": [many(part) for part in range(PARTS)]})
    with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        ask("d.a", full, mariadb, "--replace")
        running.wait_for("load_started", table="d.a")
        assert command("load", "pause", "--table", "d.a", server=mariadb).returncode == 0
        running.wait_for("decision_obeyed", table="d.a", verb="pause")
        held = len(rows(mariadb, "d.a"))
        assert held < PARTS * ROWS
        again = command("load", "--table", "d.a", "--dump", full.as_uri(), server=mariadb)
        assert (again.returncode, "is being loaded from" in again.stderr) == (2, True)
        status = json.loads(command("status", "--json", server=mariadb).stdout)
        assert status["needed"]["checkpoint"] == ts(9)
        assert [load["phase"] for load in status["loads"]] == ["loading"]
        bucket.rows("d.b", 2, row("d.b", 12, "2", '"new"'))
        bucket.metadata(ts(15))
        running.wait_for("round_finished", checkpoint_running=ts(15))
        assert rows(mariadb, "d.b") == {1: "new", 2: "new"}
        assert len(rows(mariadb, "d.a")) == held
        assert command("load", "resume", "--table", "d.a", server=mariadb).returncode == 0
        running.wait_for("load_finished", table="d.a")
        bucket.rows("d.a", 2, row("d.a", 14, "1", '"old"'), row("d.a", 25, "3", '"new"', operation="U"))
        bucket.metadata(ts(30))
        running.wait_for("round_finished", checkpoint=ts(30))
        found = rows(mariadb, "d.a")
        assert (len(found), found[1], found[3]) == (PARTS * ROWS, "copy", "new")


def test_a_load_is_cancelled(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """One that nobody has begun leaves the table as it was; one that has begun leaves the table out."""
    later = export(tmp_path / "later", 20, {"b": [many(part) for part in range(PARTS)]})
    with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        ask("d.b", later, mariadb, "--replace")
        running.wait_for("load_started", table="d.b")
        cancelled = command("load", "cancel", "--table", "d.b", server=mariadb)
        assert (cancelled.returncode, "left out" in cancelled.stdout) == (0, True)
        running.wait_for("decision_obeyed", table="d.b", verb="skip")
    assert "cancelled" in command("load", "--all", "--table", "d.b", server=mariadb).stdout
    told = "no load of d.a is known"
    for _ in range(2):
        paused = command("load", "pause", "--table", "d.a", server=mariadb)
        assert (paused.returncode, told in paused.stderr) == (2, True), (
            "what has not begun is not paused, nor is the table"
        )
        ask("d.a", later, mariadb)
        told = "the load of d.a has not begun. To withdraw it: storage-consumer load cancel --table d.a"
    cancelled = command("load", "cancel", "--table", "d.a", server=mariadb)
    assert (cancelled.returncode, "withdrawn" in cancelled.stdout) == (0, True)
    again = command("load", "cancel", "--table", "d.a", server=mariadb)
    assert (again.returncode, "there is nothing to cancel" in again.stderr) == (2, True)


def test_an_export_that_was_deleted(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """The table halts, and the commands of the message, as they stand there, lead to another copy; the other table goes on."""
    gone = export(tmp_path / "gone", 20, {"a": [many(part) for part in range(PARTS)]})
    with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        ask("d.a", gone, mariadb, "--replace")
        running.wait_for("load_started", table="d.a")
        assert command("load", "pause", "--table", "d.a", server=mariadb).returncode == 0
        running.wait_for("decision_obeyed", table="d.a", verb="pause")
        for path in gone.iterdir():
            path.unlink()
        assert command("load", "resume", "--table", "d.a", server=mariadb).returncode == 0
        error = str(running.wait_for("table_halted", table="d.a")["error"])
        _, cancel, pause, load = (
            shlex.split(part)[1:] for part in re.findall(r"storage-consumer .*?--downstream-uri \S+", error)
        )
        for words, verb in ((cancel, "skip"), (pause, "pause")):
            assert command(*words).returncode == 0
            running.wait_for("decision_obeyed", table="d.a", verb=verb)
        bucket.rows("d.a", 2, row("d.a", 28, "3", '"new"', operation="U"))
        bucket.metadata(ts(30))
        running.wait_for("round_finished", checkpoint_running=ts(30))
        another = export(tmp_path / "another", 25, {"a": ["(1,'copy'),\n(3,'copy')"]})
        assert command(*(another.as_uri() if word == "URI" else word for word in load)).returncode == 0
        running.wait_for("load_finished", table="d.a")
        wait_until("the change after the copy", lambda: rows(mariadb, "d.a") == {1: "copy", 3: "new"})


def test_a_load_that_waits_says_for_what(mariadb: DatabaseServer, bucket: SmallBucket, tmp_path: Path) -> None:
    """A statement that may touch the table and is not known to have ended keeps its load waiting: the list names the version."""
    with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
        assert running.end() == 0
    ask("d.b", export(tmp_path / "later", 20, {"b": ["(7,'copy')"]}), mariadb, "--replace")
    of_b = "table_name = 'b' AND statement LIKE 'CREATE TABLE%'"
    ((version,),) = mariadb.query(f"SELECT version FROM storage_consumer.ddl_journal WHERE {of_b}")
    for state, waits_for in (("started", version), ("done", None)):
        mariadb.query(f"UPDATE storage_consumer.ddl_journal SET state = '{state}' WHERE {of_b}")
        (listed,) = json.loads(command("load", "--json", server=mariadb).stdout)["loads"]
        assert (listed["table"], listed["waits_for"]) == ("d.b", waits_for)
        told = f"waits for the statement with version {version}" in command("load", server=mariadb).stdout
        assert told == (waits_for is not None)
