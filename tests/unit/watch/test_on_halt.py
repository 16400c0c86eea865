"""What the command of ``--on-halt`` is told, and what becomes of one that fails."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_consumer import telemetry
from storage_consumer.clock import SystemClock
from storage_consumer.config.commands import run_command
from storage_consumer.config.load import load
from storage_consumer.errors import ConfigError
from storage_consumer.summary import RoundSummary, TableSummary
from storage_consumer.watch import on_halt
from storage_consumer.watch.on_halt import MOST_TABLES, OnHalt, check_command, cut, next_step
from tests.harness.waiting import wait_until

URIS: dict[str, object] = {"upstream_uri": "file:///b?protocol=csv", "downstream_uri": "mysql://app@db:3306/"}
ABOUT: dict[str, object] = {
    "host": "db1",
    "pid": 7,
    "version": "1.2",
    "upstream": "s3://b/p",
    "downstream": "t:3306",
    "state_schema": "storage_consumer",
}
RESUME = "storage-consumer table resume --table d.a --downstream-uri mysql://app@t:3306/"
ERROR = f"row 3 is broken. Repair the file, then run: {RESUME}"
Document = dict[str, Any]


class Watched:
    """A command that keeps what it is told, and what it was told so far."""

    def __init__(self, folder: Path) -> None:
        """Nothing was told."""
        self.free = folder / "free"
        self.free.touch()
        self._got = folder / "got"
        self._got.touch()
        self._read = 0
        # A shell that waits where a test says so.
        script = 'until [ -e "$0" ]; do sleep 0.02; done; { cat; printf "\\036"; } >> "$1"'
        self.alerts = OnHalt(("sh", "-c", script, str(self.free), str(self._got)), ABOUT, SystemClock())

    def hears(self, name: str, **fields: object) -> None:
        """The log says something."""
        self.alerts.heard(name, logging.INFO, fields)

    def halts(self, table: str, error: str = ERROR) -> None:
        """The log says that a table halts."""
        self.hears("table_halted", table=table, checkpoint=5 << 18, error=error)

    def round(self, *halted: str, error: str = ERROR) -> list[Document]:
        """A round ends with these tables halted; what was told since the last question."""
        tables = tuple(TableSummary(table=table, state="halted", error=error, checkpoint=5 << 18) for table in halted)
        self.alerts.round_finished(RoundSummary(tables=tables))
        return self.new()

    def new(self) -> list[Document]:
        """What was told since the last question."""
        wait_until("the end of the command", lambda: not self.alerts._waiting)
        found = [json.loads(line) for line in self._got.read_text(encoding="utf-8").split("\x1e")[:-1]]
        self._read, before = len(found), self._read
        return found[before:]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A command that is called."""
    found = Watched(tmp_path)
    with found.alerts.listening():
        yield found


@pytest.fixture
def secret(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """A secret that is registered, while all is logged."""
    caplog.set_level(logging.DEBUG, logger="storage_consumer")
    telemetry.register_secret("opensesame")
    yield "opensesame"
    telemetry.forget_secrets()


def _events(documents: list[Document]) -> list[tuple[object, ...]]:
    return [(each["event"], each.get("count"), each.get("halted"), each.get("table")) for each in documents]


def test_a_halt_is_told_once(watched: Watched) -> None:
    """At once, with all that is needed to act; not again while it lasts, nor for a round that is repeated."""
    watched.halts("d.a")
    (document,) = watched.new()
    described = {
        "table": "d.a",
        "error": ERROR,
        "next_step": f"Repair the file, then run: {RESUME}",
        "commands": [RESUME],
        "checkpoint": 5 << 18,
        "checkpoint_time": "1970-01-01T00:00:00.005Z",
    }
    assert document.pop("time").endswith("Z")
    assert document == {
        **ABOUT,
        "event": "table_halted",
        "text": f"storage-consumer on db1, s3://b/p to t:3306: d.a halted: {ERROR}",
        "count": 1,
        "halted": 1,
        **described,
        "tables": [described],
    }
    watched.halts("d.a")
    assert [watched.round("d.a") for _ in range(3)] == [[], [], []]


def test_halts_while_the_command_runs_are_one_document(watched: Watched) -> None:
    """500 tables are counted, the first 50 listed; no more commands run than are needed."""
    watched.round()
    watched.free.unlink()
    watched.halts("d.first")
    wait_until("the start of the command", lambda: watched.alerts._is_running)
    tables = [f"d.t{number}" for number in range(500)]
    for table in tables:
        watched.halts(table)
    watched.hears("decision_obeyed", table="d.t0", verb="pause")
    watched.free.touch()
    one, document = watched.new()
    assert (one["event"], one["count"]) == ("table_halted", 1)
    assert (document["event"], document["count"], document["halted"]) == ("table_halted", 500, 500)
    assert len(document["tables"]) == MOST_TABLES
    assert ": 500 tables halted, the first is d.t0: row 3 is broken" in document["text"]
    assert watched.round("d.first", *tables[1:]) == []


def test_tables_that_were_halted_before_the_start_are_told_once(watched: Watched) -> None:
    """As still halted, in one document, without those that halt in the first round."""
    watched.halts("d.c")
    assert _events(watched.new()) == [("table_halted", 1, 1, "d.c")]
    assert _events(watched.round("d.a", "d.b", "d.c")) == [("still_halted", 2, 3, "d.a")]
    assert watched.round("d.a", "d.b", "d.c") == []


def test_what_an_operator_decided_before_the_start_is_told(watched: Watched) -> None:
    """A table that halts again after a decision is a halt, one that goes on is a recovery; neither is still halted."""
    watched.hears("decision_obeyed", table="d.a", verb="resume")
    watched.hears("decision_obeyed", table="d.b", verb="resume")
    assert _events(watched.round("d.a", "d.c")) == [
        ("still_halted", 1, 2, "d.c"),
        ("table_halted", 1, 2, "d.a"),
        ("table_resumed", 1, 2, "d.b"),
    ]
    assert watched.round("d.a", "d.c") == []


@pytest.mark.parametrize("verb", ["pause", "skip"])
def test_table_that_an_operator_takes_away(watched: Watched, verb: str) -> None:
    """A halted table that is paused or skipped no longer counts as halted, and is not said to go on; a resumed one is."""
    watched.round("d.a", "d.b")
    watched.hears("decision_obeyed", table="d.a", verb=verb)
    watched.hears("decision_obeyed", table="d.c", verb=verb)
    assert watched.round("d.b") == []
    watched.hears("decision_obeyed", table="d.a", verb="resume")
    assert _events(watched.round("d.b")) == [("table_resumed", 1, 1, "d.a")]


def test_recovery_is_told(watched: Watched) -> None:
    """With the number of tables that are still halted; also if a table halts anew in the same round, which is another halt."""
    watched.round("d.a", "d.b", "d.c")
    watched.hears("decision_obeyed", table="d.a", verb="resume")
    (document,) = watched.round("d.b", "d.c")
    assert _events([document]) == [("table_resumed", 1, 2, "d.a")]
    assert str(document["text"]).endswith(": d.a goes on; 2 still halted")
    assert "error" not in document
    watched.hears("decision_obeyed", table="d.b", verb="resume")
    watched.halts("d.b", "row 4 is broken")
    (again,) = watched.round("d.b", "d.c")
    assert (again["event"], again["table"], again["error"]) == ("table_halted", "d.b", "row 4 is broken")
    (last,) = watched.round()
    assert str(last["text"]).endswith(": 2 tables, d.b among them, go on; no table is halted any more")


def test_a_waiting_table_is_no_halt(watched: Watched) -> None:
    """Neither that it waits nor that it goes on is told."""
    waits = TableSummary(table="d.a", state="waiting", error="file 3 is missing")
    watched.alerts.round_finished(RoundSummary(tables=(waits,)))
    watched.hears("table_resumed", table="d.a")
    assert watched.round() == []


def test_take_over_and_failure_are_told(watched: Watched) -> None:
    """A lease that nobody had before is no take-over; a failure comes after the halts that led to it."""
    lease = {"holder": "host b, pid 2", "epoch": 4}
    watched.alerts.heard("lease_acquired", logging.INFO, lease)
    assert watched.new() == []
    watched.hears("lease_acquired", **lease, former="host a, pid 1")
    (document,) = watched.new()
    assert (document["event"], document["former"], document["epoch"]) == ("took_over", "host a, pid 1", 4)
    watched.halts("d.a")
    watched.hears("failed", error=ERROR, kind="LeaseLost", exit_code=3)
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


def test_the_first_quarantined_row_of_a_table_is_told(watched: Watched) -> None:
    """At once, with the reason and what to type; again only after the table was equal in between."""
    fields = {"table": "d.a", "key": "id = 1", "error": "error 1406: too long"}
    watched.alerts.heard("row_quarantined", logging.ERROR, fields)
    watched.alerts.heard("row_quarantined", logging.ERROR, fields)
    (document,) = watched.new()
    assert (document["event"], document["table"]) == ("row_quarantined", "d.a")
    assert document["commands"] == ["storage-consumer quarantine"]
    assert "not equal to the source" in str(document["text"])
    watched.alerts.round_finished(RoundSummary(quarantined={"d.a": 1}))
    watched.alerts.heard("row_quarantined", logging.ERROR, fields)
    assert watched.new() == []
    watched.alerts.round_finished(RoundSummary())
    watched.alerts.heard("row_quarantined", logging.ERROR, fields)
    assert [each["event"] for each in watched.new()] == ["row_quarantined"]


def _log_of(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """What the log says once a command was told of one halt."""
    alerts = OnHalt(words, ABOUT, SystemClock())
    with alerts.listening():
        alerts.heard("table_halted", logging.ERROR, {"table": "d.a", "checkpoint": 1, "error": "x"})
        wait_until("the end of the command", lambda: not alerts._waiting)
    return [message for message in caplog.messages if message.startswith("alert_")]


def test_a_command_that_fails_is_logged(secret: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with its code and what it wrote, without its arguments and without secrets, also where the text is cut."""
    script = f"printf '%0195d{secret}' 0 >&2; exit 7"
    (line,) = _log_of(caplog, "sh", "-c", script)
    assert line == f'alert_failed hook=sh alert=table_halted error="it ended with 7: {"0" * 195}***"'
    assert "opens" not in cut("x" * 994 + secret * 2)


@pytest.mark.parametrize(
    "script", ["sleep 600 & echo $! > {}; wait", "echo $$ > {}; while :; do cat /dev/zero >&2; done"]
)
def test_a_command_that_hangs_is_killed(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what it has started; what one writes without end was read and forgotten."""
    monkeypatch.setattr(on_halt, "TIME_LIMIT", 1.0)
    started = tmp_path / "started"
    (line,) = _log_of(caplog, "sh", "-c", script.format(started))
    assert line.endswith('error="it was killed after 1 s"')
    process = Path("/proc") / started.read_text(encoding="utf-8").strip() / "status"
    wait_until("its end", lambda: not process.exists() or "State:\tZ" in process.read_text(encoding="utf-8"))


def test_what_a_command_leaves_running_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Its end counts, though another process still holds what it writes to."""
    began = time.monotonic()
    assert _log_of(caplog, "sh", "-c", "sleep 20 &") == []
    assert time.monotonic() - began < 15


def test_the_end_of_the_program_waits_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was not delivered by then is logged."""
    monkeypatch.setattr(on_halt, "LAST_WAIT", 0.2)
    watched = Watched(tmp_path)
    watched.free.unlink()
    with watched.alerts.listening():
        watched.halts("d.a")
    assert caplog.messages[-1].endswith('error="the program ends; 1 were not delivered"')
    watched.free.touch()


def test_what_waits_for_a_slow_command_is_bounded(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that halts and goes on all the time while the command hangs fills no memory: what is dropped is logged."""
    monkeypatch.setattr(on_halt, "MOST_WAITING", 3)
    watched.free.unlink()
    for _ in range(5):
        watched.halts("d.a")
        watched.alerts.round_finished(RoundSummary())
    assert len(watched.alerts._waiting) == 3
    dropped = [message for message in caplog.messages if message.startswith("alert_failed")]
    assert len(dropped) == 7
    assert dropped[0].endswith('error="3 others wait already"')
    watched.free.touch()


def test_an_unexpected_error_ends_no_thread(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged as the failure of this document, and the next one is told."""
    monkeypatch.setattr(on_halt, "_called", lambda *_: 1 / 0)
    alerts = OnHalt(("page",), ABOUT, SystemClock())
    with alerts.listening():
        for table in ("d.a", "d.b"):
            alerts.heard("table_halted", logging.ERROR, {"table": table, "checkpoint": 1, "error": "x"})
            wait_until("the end of the command", lambda: not alerts._waiting)
    failed = [message for message in caplog.messages if message.startswith("alert_failed")]
    assert len(failed) == 2
    assert "ZeroDivisionError" in failed[0]


def test_an_address_is_no_command() -> None:
    """It is a secret for chat services, so the message that refuses it does not show it; nor does the log what a command says of it."""
    address = "https://hooks.example.com/services/T0/B0/opensesame"
    for text in (address, f"{address} now"):
        with pytest.raises(ConfigError, match=r"^--on-halt: .*curl.* ADDRESS") as refused:
            load({**URIS, "on_halt": text}, {})
        assert "opensesame" not in str(refused.value)
    try:
        load({**URIS, "on_halt": f"curl -d @- {address}"}, {})
        assert "opensesame" not in telemetry.redact(f"cannot reach {address}; tried /services/T0/B0/opensesame")
    finally:
        telemetry.forget_secrets()


@pytest.mark.parametrize("text", ["page 'opensesame", "''", "", 7, ["page", "other"]])
def test_a_command_that_cannot_be_read_is_a_wrong_setting(text: object) -> None:
    """The message says what is expected, and quotes nothing."""
    with pytest.raises(ConfigError, match=r"^--on-halt: ") as refused:
        load({**URIS, "on_halt": text}, {})
    assert "opensesame" not in str(refused.value)


def test_the_command_comes_from_every_place() -> None:
    """From flag, keyword, environment and TOML file; its arguments may be secrets, which the command to go on with does not show."""
    for given, environ in (
        ({"on_halt": "page 'two words'"}, {}),
        ({}, {"STORAGE_CONSUMER_ON_HALT": "page 'two words'"}),
        ({"config": {"consumer": {"on-halt": "page 'two words'"}}}, {}),
    ):
        loaded = load({**URIS, **given}, environ)
        assert loaded.program.on_halt == ("page", "two words")
    assert load(URIS, {}).program.on_halt == ()
    for text, shown in (("page", "page"), ("page --token x", "'***'")):
        assert f" --on-halt {shown} " in run_command(load({**URIS, "on_halt": text}, {}).config)
    check_command(())
    with pytest.raises(ConfigError, match="--on-halt: /no/such is not there"):
        check_command(("/no/such", "thing"))
