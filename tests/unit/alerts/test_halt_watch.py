"""Which documents are sent for what happens."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from storage_consumer.alerts.document import MOST_TABLES, About, Document, next_step
from storage_consumer.alerts.halt_watch import HaltWatch
from storage_consumer.summary import RoundSummary, Silent, TableSummary
from tests.harness.twins.storage import FakeClock

ABOUT = About(
    version="1.2", host="db1", pid=7, upstream="s3://b/p", downstream="t:3306", state_schema="storage_consumer"
)
RESUME = "storage-consumer table resume --table d.a --downstream-uri mysql://app@t:3306/"
ERROR = f"row 3 is broken. Repair the file, then run: {RESUME}"


class Watched:
    """A watch, what it sent, and its clock."""

    def __init__(self) -> None:
        """Nothing was sent."""
        self.sent: list[Document] = []
        self.clock = FakeClock()
        self.watch = HaltWatch(Silent(), self.sent.append, ABOUT, self.clock)

    def halts(self, table: str, error: str = ERROR) -> None:
        """The log says that a table halts."""
        self.watch.heard("table_halted", logging.ERROR, {"table": table, "checkpoint": 5 << 18, "error": error})

    def round(self, *halted: str, error: str = ERROR) -> list[Document]:
        """A round ends with these tables halted; what was sent since the last question."""
        tables = tuple(TableSummary(table=table, state="halted", error=error, checkpoint=5 << 18) for table in halted)
        self.watch.round_finished(RoundSummary(tables=tables))
        return self.new()

    def new(self) -> list[Document]:
        """What was sent since the last question."""
        sent, self.sent[:] = list(self.sent), []
        return sent

    def after(self, seconds: float) -> list[Document]:
        """What is sent so much later in a round."""
        self.clock.advance(seconds)
        self.watch.tick()
        return self.new()


def _events(documents: list[Document]) -> list[tuple[object, ...]]:
    return [(each["event"], each.get("count"), each.get("halted"), each.get("table")) for each in documents]


def test_a_halt_is_told_once() -> None:
    """At the end of its round, with all that is needed to act; not again while it lasts, nor for a round that is repeated."""
    watched = Watched()
    watched.halts("d.a")
    assert watched.new() == []
    (document,) = watched.round("d.a")
    described = {
        "table": "d.a",
        "error": ERROR,
        "next_step": f"Repair the file, then run: {RESUME}",
        "commands": [RESUME],
        "checkpoint": 5 << 18,
        "checkpoint_time": "1970-01-01T00:00:00.005Z",
    }
    assert {**document, "time": ""} == {
        "event": "table_halted",
        "time": "",
        "host": "db1",
        "pid": 7,
        "version": "1.2",
        "upstream": "s3://b/p",
        "downstream": "t:3306",
        "state_schema": "storage_consumer",
        "text": f"storage-consumer on db1, s3://b/p to t:3306: d.a halted: {ERROR}",
        "count": 1,
        "halted": 1,
        **described,
        "tables": [described],
    }
    watched.halts("d.a")
    assert [watched.round("d.a") for _ in range(3)] == [[], [], []]


def test_many_halts_of_a_round_are_one_document() -> None:
    """500 tables are counted, the first 50 listed; the same if no event was heard of them."""
    tables = [f"d.t{number}" for number in range(500)]
    for heard in (tables, []):
        watched = Watched()
        watched.round()
        for table in heard:
            watched.halts(table)
        (document,) = watched.round(*tables)
        assert (document["event"], document["count"], document["halted"]) == ("table_halted", 500, 500)
        listed: Any = document["tables"]
        assert len(listed) == MOST_TABLES
        assert ": 500 tables halted, the first is d.t0: row 3 is broken" in str(document["text"])


def test_a_long_round_does_not_hold_a_halt_back() -> None:
    """It is told after 5 seconds without another one; while they go on, after a minute."""
    watched = Watched()
    watched.halts("d.a")
    assert watched.after(4) == []
    assert _events(watched.after(2)) == [("table_halted", 1, 1, "d.a")]
    counts = []
    for number in range(25):
        watched.halts(f"d.b{number}")
        counts += [document["count"] for document in watched.after(4)]
    assert counts == [15]
    assert [document["count"] for document in watched.after(5)] == [10]
    assert watched.round("d.a", *(f"d.b{number}" for number in range(25))) == []


def test_tables_that_were_halted_before_the_start_are_told_once() -> None:
    """As still halted, in one document, beside those that halt in the first round."""
    watched = Watched()
    watched.halts("d.c")
    assert _events(watched.round("d.a", "d.b", "d.c")) == [
        ("still_halted", 2, 3, "d.a"),
        ("table_halted", 1, 3, "d.c"),
    ]
    assert watched.round("d.a", "d.b", "d.c") == []


def test_what_an_operator_decided_before_the_start_is_told() -> None:
    """A table that halts again after a decision is a halt, one that goes on is a recovery; neither is still halted."""
    watched = Watched()
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.a", "verb": "resume"})
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.b", "verb": "resume"})
    assert _events(watched.round("d.a", "d.c")) == [
        ("still_halted", 1, 2, "d.c"),
        ("table_halted", 1, 2, "d.a"),
        ("table_resumed", 1, 2, "d.b"),
    ]
    assert watched.round("d.a", "d.c") == []


@pytest.mark.parametrize("verb", ["pause", "skip"])
def test_table_that_an_operator_takes_away(verb: str) -> None:
    """A halted table that is paused or skipped no longer counts as halted, and is not said to go on; a resumed one is."""
    watched = Watched()
    watched.round("d.a", "d.b")
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.a", "verb": verb})
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.c", "verb": verb})
    assert watched.round("d.b") == []
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.a", "verb": "resume"})
    assert _events(watched.round("d.b")) == [("table_resumed", 1, 1, "d.a")]


def test_recovery_is_told() -> None:
    """With the number of tables that are still halted; also if a table halts anew in the same round, which is another halt."""
    watched = Watched()
    watched.round("d.a", "d.b", "d.c")
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.a", "verb": "resume"})
    (document,) = watched.round("d.b", "d.c")
    assert _events([document]) == [("table_resumed", 1, 2, "d.a")]
    assert str(document["text"]).endswith(": d.a goes on; 2 still halted")
    assert "error" not in document
    watched.watch.heard("decision_obeyed", logging.INFO, {"table": "d.b", "verb": "resume"})
    watched.halts("d.b", "row 4 is broken")
    (again,) = watched.round("d.b", "d.c")
    assert (again["event"], again["table"], again["error"]) == ("table_halted", "d.b", "row 4 is broken")
    (last,) = watched.round()
    assert str(last["text"]).endswith(": 2 tables, d.b among them, go on; no table is halted any more")


def test_a_waiting_table_is_no_halt() -> None:
    """Neither that it waits nor that it goes on is told."""
    watched = Watched()
    waits = TableSummary(table="d.a", state="waiting", error="file 3 is missing")
    watched.watch.round_finished(RoundSummary(tables=(waits,)))
    watched.watch.heard("table_resumed", logging.INFO, {"table": "d.a"})
    assert watched.round() == []


def test_take_over_and_failure_are_told() -> None:
    """A lease that nobody had before is no take-over; a failure comes after the halts that led to it."""
    watched = Watched()
    lease = {"holder": "host b, pid 2", "epoch": 4}
    watched.watch.heard("lease_acquired", logging.INFO, lease)
    assert watched.new() == []
    watched.watch.heard("lease_acquired", logging.INFO, {**lease, "former": "host a, pid 1"})
    (document,) = watched.new()
    assert (document["event"], document["former"], document["epoch"]) == ("took_over", "host a, pid 1", 4)
    watched.halts("d.a")
    watched.watch.heard("failed", logging.ERROR, {"error": ERROR, "kind": "LeaseLost", "exit_code": 3})
    halted, failed = watched.new()
    assert (halted["event"], failed["event"]) == ("table_halted", "failed")
    assert (failed["exit_code"], failed["kind"], failed["commands"]) == (3, "LeaseLost", [RESUME])


def test_the_next_step_begins_with_its_own_sentence() -> None:
    """Where several commands are offered, what each is for is part of it."""
    ways = (
        "Next steps: if you ran it manually: storage-consumer ddl done --table d.a -- to skip it: storage-consumer "
        "ddl skip --table d.a -- to run another statement instead: storage-consumer ddl replace --sql '...'"
    )
    assert next_step(f"error 1054: no column x. {ways}") == (
        ways,
        (
            "storage-consumer ddl done --table d.a",
            "storage-consumer ddl skip --table d.a",
            "storage-consumer ddl replace --sql '...'",
        ),
    )
    quoted = "Make the table fit, then run `storage-consumer table resume` to try it again"
    assert next_step(f"no column. {quoted}. {ways}")[0] == f"{quoted}. {ways}"
    done = "storage-consumer table reload-done --table d.a --at TSO"
    then = "To avoid this, run `storage-consumer rebind --restored` before the start"
    assert next_step(f"it is that copy. {then}. Now run: {done}") == (f"{then}. Now run: {done}", (done,))
    assert next_step(f"no column. {quoted}")[1] == ("storage-consumer table resume",)
    assert next_step("row 3 is broken") == ("", ())


def test_a_command_that_a_message_quotes_is_none_of_its_own() -> None:
    """What a file or the target puts into an error is not offered as a command to paste."""
    forged = "storage-consumer table skip --table d.b --downstream-uri mysql://evil/"
    mine = "storage-consumer table resume --table d.a --downstream-uri mysql://h/"
    assert next_step(f"near '{forged}' at line 1. Next steps: to try it again: {mine}")[1] == (mine,)
    assert next_step(f"near '{forged}' at line 1")[1] == ()


def test_the_first_quarantined_row_of_a_table_is_told() -> None:
    """At once, with the reason and what to type; again only after the table was equal in between."""
    watched = Watched()
    fields = {"table": "d.a", "key": "id = 1", "error": "error 1406: too long"}
    watched.watch.heard("row_quarantined", logging.ERROR, fields)
    watched.watch.heard("row_quarantined", logging.ERROR, fields)
    (document,) = watched.new()
    assert (document["event"], document["table"]) == ("row_quarantined", "d.a")
    assert document["commands"] == ["storage-consumer quarantine"]
    assert "not equal to the source" in str(document["text"])
    watched.watch.round_finished(RoundSummary(quarantined={"d.a": 1}))
    watched.watch.heard("row_quarantined", logging.ERROR, fields)
    assert watched.new() == []
    watched.watch.round_finished(RoundSummary())
    watched.watch.heard("row_quarantined", logging.ERROR, fields)
    assert [each["event"] for each in watched.new()] == ["row_quarantined"]
