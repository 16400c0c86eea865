"""The status of a feed: one word, why, and the next command."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.driver.remedies import table_command, with_a_way_on
from storage_consumer.model import DdlId, SkippedRows, TableName
from storage_consumer.plan.loads import Load, LoadPhase, clock_of
from storage_consumer.plan.selection import AT_A_START
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import table_word
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from storage_consumer.telemetry import tso_time
from storage_consumer.watch.report import (
    FRESH,
    OVERDUE,
    Health,
    Phase,
    Report,
    Snapshot,
    StoredStatement,
    Table,
    Work,
    lag_of,
)
from storage_consumer.watch.status import STALLED, Status, commands_in, judged
from storage_consumer.watch.wording import document, doing, facts

NOW = 1_790_000_000.0
DONE = "storage-consumer ddl done --table d.a --version 7 --downstream-uri mysql://root@h:1/"
RETRY = "storage-consumer quarantine retry --table d.a --downstream-uri mysql://root@h:1/"
SKIP = "storage-consumer ddl skip --table d.a --version 7 --downstream-uri mysql://root@h:1/"


def at(seconds_ago: float) -> int:
    """The TSO of a moment before now."""
    return int((NOW - seconds_ago) * 1000) << 18


def table(name: str, state: str = "running", **more: object) -> Table:
    """A table of database d."""
    values: dict[str, object] = {"checkpoint": at(3), "follows": state == "running", **more}
    return Table(name=TableName(schema="d", table=name), state=state, **values)  # type: ignore[arg-type] # as given


def report(phase: Phase = Phase.IDLE, **more: object) -> Report:
    """A report of a writer."""
    values: dict[str, object] = {
        "version": "1",
        "started_at": NOW - 100,
        "since": NOW - 12,
        "phase_seconds": 12.0,
        **more,
    }
    return Report(phase=phase, **values)  # type: ignore[arg-type] # as given


def snapshot(*tables: Table, **more: object) -> Snapshot:
    """A feed whose writer is three seconds behind."""
    values: dict[str, object] = {
        "now": NOW,
        "state_schema": "storage_consumer",
        "upstream": "file:///b",
        "target": "h:3306",
        "server": "mariadb 10.11",
        "checkpoint": at(3),
        "checkpoint_running": at(3),
        "storage_checkpoint": at(2),
        "writer": "host h, pid 1",
        "last_writer": "host h, pid 1",
        "report": report(),
        "report_age": 0.0,
        **more,
    }
    return Snapshot(tables=tables, **values)  # type: ignore[arg-type] # as given


def status(found: Snapshot, max_lag: float | None = None, *, needs_writer: bool = True) -> Status:
    """Its status."""
    return judged(found, lambda verb, name: f"{verb} {name}", max_lag=max_lag, needs_writer=needs_writer)


def test_healthy() -> None:
    """A writer that keeps up is healthy, with lags in seconds and nothing to say."""
    found = status(snapshot(table("a"), table("b"), table("gone", TableState.DROPPED)), max_lag=5)
    assert (found.health, found.reasons, found.tables) == (Health.HEALTHY, (), ())
    assert (found.lag, found.lag_running, found.source_lag) == (3, 3, 2)
    assert found.counts == {"running": 2}


def test_tables_that_are_left_out_are_told() -> None:
    """Healthy means those that are replicated; the others are counted in the same sentence, also beside a halted table."""
    out = (table("b", TableState.EXCLUDED), table("c", TableState.EXCLUDED, error="skipped by me since then"))
    assert status(snapshot(table("a"))).text == "healthy: 1 table, 3s behind now"
    assert status(snapshot(table("a"), table("d"), *out)).text == "healthy: 2 tables, 3s behind now; 2 left out"
    halted = status(snapshot(table("a", "halted", error="x"), table("d"), *out))
    assert halted.text == "stopped: 1 of 2 tables halted; the others go on; 2 left out"


def test_rows_that_are_left_out() -> None:
    """Each transaction has its tables and numbers; one that the tables are beyond had no rows, as a statement has none."""
    a, b, nobody = (TableName(schema=schema, table=name) for schema, name in (("d", "a"), ("d", "b"), ("", "")))
    first, second, third, later = at(40), at(30), at(20), at(-9)
    found = snapshot(
        table("a"),
        skipped=(
            *(SkippedRows(nobody, ts, 0) for ts in (first, second, third, later)),
            *(SkippedRows(a, first, 1), SkippedRows(b, first, 2_000), SkippedRows(b, second, None)),
            SkippedRows(a, third, 0),
        ),
    )
    times = [f"{ts} ({tso_time(ts)})" for ts in (first, first, second, third)]
    words = ["1 row of d.a", "2,000 rows of d.b", "no one knows how many rows of d.b", "no rows"]
    said = facts(status(found))["rows left out"]
    assert said == "; ".join(f"{time}: {text}" for time, text in zip(times, words, strict=True))
    assert document(status(found))["rows_left_out"][1] == {  # type: ignore[index] # a list
        "table": "d.b",
        "commit_ts": {"ts": first, "time": tso_time(first)},
        "rows": 2_000,
    }
    assert facts(status(snapshot(table("a"))))["rows left out"] == ""


def test_what_is_taken_for_granted_is_a_fact() -> None:
    """The settings of the writer say it, so that a healthy feed does not hide it."""
    assert facts(status(snapshot(table("a"), report=report(assumed="rows up to 7"))))["assumed"] == "rows up to 7"
    assert facts(status(snapshot(table("a"))))["assumed"] == ""


def test_nobody_writes() -> None:
    """Without a writer the feed is unhealthy, whatever else holds; where it runs in batches that is no fault."""
    lonely = snapshot(table("a", "halted", error="x"), writer="", report=report(Phase.ENDED))
    found = status(lonely, max_lag=1)
    assert found.health == Health.NO_WRITER
    assert found.reasons[0] == "nobody writes; host h, pid 1 was the last; it ended: start `storage-consumer run`"
    assert status(lonely, needs_writer=False).health == Health.STOPPED
    assert status(snapshot(writer=""), needs_writer=False).health == Health.HEALTHY


def test_nobody_can_write() -> None:
    """On a target that is read-only a start is of no use before it takes writes again."""
    found = status(snapshot(table("a"), writer="", read_only=True))
    assert found.health == Health.NO_WRITER
    assert "the target is read-only" in found.reasons[0]


def test_retrying() -> None:
    """A writer whose rounds fail is not healthy: nothing is applied, whatever the lag; that counts before stopped tables."""
    found = status(snapshot(table("a", "halted", error="x"), report=report(Phase.RETRYING, retry="no route")))
    assert (found.health, found.reasons[0].endswith("no route")) == (Health.RETRYING, True)
    silent = snapshot(report=report(Phase.RETRYING), report_age=99.0)
    assert status(silent).health == Health.HEALTHY


@pytest.mark.parametrize(
    ("checkpoint", "limit", "health"),
    [
        (at(10), 10.0, Health.HEALTHY),
        (at(11), 10.0, Health.BEHIND),
        (0, 10.0, Health.BEHIND),
        (at(999_999), None, Health.HEALTHY),
    ],
)
def test_limit_of_the_lag(checkpoint: int, limit: float | None, health: Health) -> None:
    """The limit itself is allowed; without a checkpoint any limit is exceeded; without a limit any age is healthy."""
    assert status(snapshot(checkpoint=checkpoint), limit).health == health


def test_halted_table() -> None:
    """A halted table says why, how far it is, and which commands its message names; all others are counted."""
    error = f"the target refused it. Next steps: if you ran it manually: {DONE} -- to skip it: {SKIP}"
    found = status(snapshot(table("b"), table("a", "halted", error=error, checkpoint=at(60))))
    assert found.health == Health.STOPPED
    assert found.reasons == ("1 of 2 tables halted; the others go on",)
    (shown,) = found.tables
    assert (str(shown.name), shown.state, shown.lag, shown.reason) == ("d.a", "halted", 60, error)
    assert shown.next_steps == (DONE, SKIP)
    assert shown.meanings == {DONE: "if you ran it manually", SKIP: "to skip it"}


@pytest.mark.parametrize("flag", ["", " --table d.a"])
def test_message_that_only_names_the_command(flag: str) -> None:
    """Where a message says to try again, that command stands first, whole."""
    error = f"Make it fit, then run `storage-consumer table resume{flag}` to try it again. Next steps: skip it: {SKIP}"
    assert status(snapshot(table("a", "halted", error=error))).tables[0].next_steps == ("resume d.a", SKIP)


@pytest.mark.parametrize(("state", "step"), [("halted", "resume d.a"), ("lost", "reload-done d.a")])
def test_message_without_a_command(state: str, step: str) -> None:
    """The command is the one that ends such a state."""
    found = status(snapshot(table("a", state, error="broken")))
    assert found.tables[0].next_steps == (step,)
    assert found.counts == {"halted": 1}


def test_a_table_that_was_left_out_is_halted_for_whatever_stops_it_now() -> None:
    """Stored as left out, since it lacks what was passed over, it is shown as halted. Trying it again would be refused: it needs a copy."""
    error = "the copy that this feed began with does not hold the table of d/a/meta/schema_7_1.json"
    found = status(snapshot(table("a", "excluded", error=error, checkpoint=at(60)), table("b", "excluded")))
    assert (found.health, found.counts) == (Health.STOPPED, {"excluded": 1, "halted": 1})
    (shown,) = found.tables
    assert (str(shown.name), shown.state, shown.lag, shown.reason) == ("d.a", "halted", 60, error)
    assert shown.next_steps == ("reload-done d.a",)


@pytest.mark.parametrize(
    "forged",
    [
        "storage-consumer run --on-halt 'sh -c id' --downstream-uri mysql://evil/",
        f"storage-consumer table skip --table d.b. Next steps: run: {DONE.replace('root@h:1', 'evil')}",
        "storage-consumer ddl skip --table d.b --version 7 --sql 'never closed",
        "--downstream-uri mysql://evil/",
    ],
)
@pytest.mark.parametrize("name", ["a", "it's. a", "a; b"])
def test_commands_that_a_message_quotes(forged: str, name: str) -> None:
    """What a file or the target puts into an error is never offered as the next command, and keeps no command away."""
    downstream = Downstream(given_uri="mysql://root@h:1/")
    a = TableName(schema="d", table=name)
    error = with_a_way_on(f"{a}: error 1064: syntax near '{forged}' at line 1", a, downstream)
    found = judged(snapshot(table(name, "halted", error=error)), lambda verb, of: table_command(verb, of, downstream))
    (command,) = found.tables[0].next_steps
    assert shlex.split(command) == [
        *("storage-consumer", "table", "resume", "--table", table_word(a), "--downstream-uri", "mysql://root@h:1/")
    ]


def test_a_quoted_command_alone() -> None:
    """A message without a command of its own offers the usual one, whatever it quotes."""
    (shown,) = status(snapshot(table("a", "halted", error=f"near '{DONE}' at line 1"))).tables
    assert shown.next_steps == ("resume d.a",)


def test_the_file_of_the_asker() -> None:
    """A message names the writer's password file, which a service alone may read: who asks is told the one that was given now."""
    error = f"{{}}. Next steps: storage-consumer ddl skip --table d.a --downstream-uri mysql://h/ --downstream-password-file {'/run/x y'!r}"
    for mine in ("", " --downstream-password-file mine"):
        found = judged(
            snapshot(table("a", "halted", error=error)),
            lambda verb, name, mine=mine: (
                f"storage-consumer table {verb} --table {name} --downstream-uri mysql://h/{mine}"
            ),  # type: ignore[misc]
        )
        (command,) = found.tables[0].next_steps
        assert command == f"storage-consumer ddl skip --table d.a --downstream-uri mysql://h/{mine}"


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_clocks_that_differ(ahead: float) -> None:
    """How long the writer does something is told by its own clock, and the report's age by the target's, however far apart they are."""
    said = report(Phase.RETRYING, since=NOW + ahead - 50, phase_seconds=50.0, retry="no route")
    found = status(snapshot(report=said, report_age=10.0))
    assert found.reasons[0] == "the writer has been retrying for 1m00s: no route"
    assert doing(found) == "retrying for 1m00s"


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Work(seconds=0.1, files=0, bytes=0, statements=1), "applying for 12s"),
        (
            Work(seconds=9.0, files=0, bytes=0, statements=3, statements_done=1),
            "applying for 12s: 1 of 3 statements, 18s left",
        ),
        (Work(seconds=0.1, files=0, bytes=0, statements=2), "applying for 12s: 0 of 2 statements"),
        (
            Work(seconds=4.0, files=4, bytes=1024, files_done=1, rows=8, statements=1),
            "applying for 12s: 0 of 1 statements, 1 of 4 files (1.0 KiB), 8 rows, 2 rows/s, 12s left",
        ),
    ],
)
def test_a_statement_that_waits_is_not_said_to_be_left(work: Work, words: str) -> None:
    """Each round finds it anew, and it is listed with its time: a round that has nothing else to do only says that it applies."""
    waits = StoredStatement(
        identity=DdlId("d/a", 7, 1), name=TableName(schema="d", table="a"), state="started", query="ALTER", seconds=90.0
    )
    said = report(Phase.APPLYING, phase_seconds=12.0, work=work, rows_per_second=2.0)
    assert doing(status(snapshot(report=said, statements=(waits,)))) == words


def test_halt_that_no_command_ends() -> None:
    """Where only a start with other settings helps, no command is offered."""
    (shown,) = status(snapshot(table("a", "halted", error=f"it has no place. {AT_A_START} with a --route"))).tables
    assert shown.next_steps == ()


def test_lock_of_another_session() -> None:
    """The one connection that holds the lock can be ended; of several a person has to choose."""
    one = "waits for locks: connection 7, idle for 9 s, holds a lock (`KILL 7` ends it)"
    for reason, steps in ((one, ("KILL 7",)), (f"{one}; {one}", ())):
        (shown,) = status(snapshot(table("a"), report=report(waiting={"d.a": reason}))).tables
        assert shown.next_steps == steps


def test_waiting_table() -> None:
    """What the last round found waiting counts as waiting, although the state knows it as running; it needs no command."""
    found = status(snapshot(table("a"), report=report(waiting={"d.a": "the DDL has been running for 9 s"})))
    assert (found.health, found.counts) == (Health.HEALTHY, {"waiting": 1})
    (shown,) = found.tables
    assert (shown.state, shown.reason, shown.next_steps) == ("waiting", "the DDL has been running for 9 s", ())


def test_view_that_is_left_out() -> None:
    """It runs, since it has no rows, and is listed with its reason and what can be done."""
    why = "error 1146. Next steps: storage-consumer ddl replace --table d.v --version 1 --sql '...'"
    found = status(snapshot(table("v", error=why)))
    assert (found.health, found.counts) == (Health.HEALTHY, {"running": 1})
    (shown,) = found.tables
    assert (shown.state, shown.reason) == ("running", why)
    assert shown.next_steps == ("storage-consumer ddl replace --table d.v --version 1 --sql '...'",)


def test_order() -> None:
    """What is halted comes first, then what waits, by name; tables that run are not listed."""
    tables = (table("z", "halted"), table("c", "waiting"), table("b"), table("a", "lost"), table("y", "halted"))
    assert [str(each.name) for each in status(snapshot(*tables)).tables] == ["d.y", "d.z", "d.a", "d.c"]


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"obeyed": False}, "resume by ada at 12:00 UTC; no consumer has seen it yet"),
        ({"obeyed": True, "refusal": "it lacks rows"}, "resume by ada at 12:00 UTC; refused: it lacks rows"),
        ({"obeyed": True}, None),
    ],
)
def test_decision(more: dict[str, object], shown: str | None) -> None:
    """A decision is shown until a consumer has obeyed it; one that was refused stays."""
    decided = table("a", decision="resume", decided_by="ada", decided_at="12:00", **more)  # type: ignore[arg-type] # as given
    found = status(snapshot(decided)).tables
    assert [each.decision for each in found] == ([shown] if shown else [])


def test_retrying_writer() -> None:
    """What does not answer is named, and since when."""
    found = status(snapshot(report=report(Phase.RETRYING, retry="s3://b: 503")))
    assert found.reasons == ("the writer has been retrying for 12s: s3://b: 503",)


def test_silent_writer() -> None:
    """A writer with the lease whose last report is old may hang: that is said, and its old report counts for nothing."""
    found = status(snapshot(report=report(Phase.RETRYING, retry="x"), report_age=FRESH + 1))
    assert found.reasons == ("the writer has the lease, but has said nothing of itself for 31s",)
    assert not found.is_reported


def test_no_report() -> None:
    """A writer of which no report can be read is healthy by its checkpoint, and what it does is said to be unknown."""
    found = status(snapshot(report=None))
    (reason,) = found.reasons
    assert (found.health, found.seconds_left) == (Health.HEALTHY, None)
    assert "storage_consumer holds no report of it that this program can read" in reason


def test_source_that_stands_still() -> None:
    """A lag that is the source's own is called that."""
    old = at(STALLED + 100)
    found = status(snapshot(checkpoint=old, checkpoint_running=old, storage_checkpoint=old))
    assert len(found.reasons) == 1
    assert "look at the changefeed" in found.reasons[0]


@pytest.mark.parametrize("limit", [None, 1e6])
def test_a_stale_checkpoint_is_not_healthy(limit: float | None) -> None:
    """Where no limit is given, tables that are too far behind the bucket, as it was last read, are late; those of a source that stands still are not."""
    old = {"checkpoint": at(OVERDUE + 20), "checkpoint_running": at(OVERDUE + 20)}
    late = Health.BEHIND if limit is None else Health.HEALTHY
    found = status(snapshot(**old), limit)
    assert found.health == late
    assert limit is not None or found.reasons[0].startswith("the tables are 10m18s further behind than the bucket, ")
    # What a round began with is not stored before it ends, nor read again.
    in_a_round = report(Phase.APPLYING, source_checkpoint=at(OVERDUE + 15), source_age=OVERDUE + 10.0)
    assert status(snapshot(**old, storage_checkpoint=at(OVERDUE + 20), report=in_a_round), limit).health == late
    stands_still = status(snapshot(**old, storage_checkpoint=at(OVERDUE + 15)), limit)
    assert stands_still.health == Health.HEALTHY
    assert "look at the changefeed" in stands_still.reasons[0]


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work(seconds=10, files=100, bytes=1, files_done=20), 40.0),
        (Work(seconds=10, files=100, bytes=1), None),
        (Work(seconds=10, files=100, bytes=1, statements=100, statements_done=40), 15.0),
        (Work(seconds=10, files=100, bytes=1, files_done=20, statements=100, statements_done=100), 6.666666666666667),
        (Work(seconds=10, files=0, bytes=0), None),
        (Work(seconds=10, files=5, bytes=1, files_done=7), 0.0),
        (None, None),
    ],
)
def test_time_left(work: Work | None, seconds: float | None) -> None:
    """The rest takes as long for each file and statement as those that are done; of what nobody has begun with, nobody knows."""
    assert status(snapshot(report=report(Phase.APPLYING, work=work))).seconds_left == seconds


def test_before_the_first_round() -> None:
    """There is no lag yet, which is said."""
    found = status(snapshot(checkpoint=0, checkpoint_running=0, storage_checkpoint=0))
    assert (found.lag, found.reasons) == (None, ("no round has ended yet",))


def test_statements_are_kept() -> None:
    """What runs, waits or failed is shown as it is stored."""
    one = StoredStatement(
        identity=DdlId("d/a", 7, 1), name=TableName(schema="d", table="a"), state="started", query="ALTER"
    )
    assert status(snapshot(statements=(one,))).statements == (one,)


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("nothing to do", ()),
        (f"run: {DONE}", (DONE,)),
        (f"run: {DONE}.", (DONE,)),
        (f"If somebody dropped it, run: {DONE} -- reload it, then run this: {SKIP}", (DONE, SKIP)),
        (f"first {DONE}. Then look. ", (DONE,)),
        ("storage-consumer table resume --table 'd.a b' --downstream-uri mysql://h/; else wait", (
            "storage-consumer table resume --table 'd.a b' --downstream-uri mysql://h/",
        )),
        (f"to try them again, run: {RETRY} -- else {SKIP}", (RETRY, SKIP)),
        ("storage-consumer table resume --table 'd.never closed", ()),
        (f"storage-consumer table resume {'a' * 100_000} 'never closed", ()),
        ("storage-consumer table resume 'a' " * 10_000 + "'", ("storage-consumer table resume 'a' ",) * 9_999),
    ],
)  # fmt: skip
def test_commands_of_a_message(text: str, commands: tuple[str, ...]) -> None:
    """Each command is found whole, without the words around it."""
    assert commands_in(text) == commands


@pytest.mark.parametrize(
    "name",
    ["a. b", "a; rm -rf /", "a -- b", "it's", "it's. b", "q`u", "dots.", "a\nb. c", "a\t'; b", "$'x. y", '"a. b'],
)
def test_a_command_with_an_odd_name(name: str) -> None:
    """A command ends where its last word does, whatever the table is called and wherever the socket lies."""
    downstream = Downstream(given_uri="mysql://root@localhost/?unix-socket=/a; b/s. sock", ssl_ca="/it's. mine")
    command = table_command("resume", TableName(schema="d", table=name), downstream)
    assert commands_in(f"broke. Next steps: to try it again: {command} -- else: {SKIP}.") == (command, SKIP)


def test_rows_in_the_quarantine() -> None:
    """A table with quarantined rows goes on, and the feed is unequal all the same; a halted table or no writer counts first."""
    rows = table("d.a", quarantined=2)
    found = status(snapshot(rows, table("d.b")), max_lag=1)
    assert found.health == Health.UNEQUAL
    assert found.reasons[0].startswith("2 rows of 1 table in the quarantine")
    ((shown,), expected) = found.tables, TableState.RUNNING
    assert (shown.state, shown.reason) == (expected, "2 rows in the quarantine, which the target refused")
    assert status(snapshot(rows, table("d.b", TableState.HALTED))).health == Health.STOPPED


def test_what_verify_found() -> None:
    """A table that differs is unequal, with the commands that heal it, until a comparison or a copy says otherwise."""
    heal = "storage-consumer table pause --table d.a\n# Then:\nstorage-consumer load --table d.a --dump URI"

    def found(name: str, outcome: VerifyOutcome = VerifyOutcome.DIFFERENT) -> TableResult:
        it = TableName(schema="d", table=name)
        return TableResult(table=it, target=it, outcome=outcome, checkpoint=7, differing=2, missing=1, heal=heal)

    doubted = replace(found("a"), checkpoint=0, reason="the target's table lacks the column v")
    seen = status(snapshot(table("a"), verified=(doubted,)), max_lag=5)
    assert (seen.health, seen.tables[0].reason) == (Health.UNEQUAL, doubted.reason)
    assert seen.reasons[0].startswith("the rows of 1 table are in doubt")

    seen = status(snapshot(table("a"), table("b"), verified=(found("a"), found("b", VerifyOutcome.EQUAL))), max_lag=5)
    assert (seen.health, seen.reasons[0]) == (Health.UNEQUAL, "`verify` found 1 table different: d.a")
    (shown,) = seen.tables
    assert (shown.state, shown.reason) == ("running", "`verify` found 3 rows different as of 7")
    assert shown.next_steps == (
        "storage-consumer table pause --table d.a",
        "storage-consumer load --table d.a --dump URI",
    )


@pytest.mark.parametrize(
    ("ahead", "refused", "word"), [(59, 0, "healthy"), (3_600, 0, "clock-skew"), (-2, 172_800, "clock-skew")]
)
def test_a_source_that_is_ahead_of_the_clock(ahead: float, refused: float, word: str) -> None:
    """A bucket whose checkpoint is ahead of the target's clock shows that no lag means anything, whether that checkpoint is believed or not."""
    writer = report(refused_checkpoint=at(-refused) if refused else 0)
    found = status(snapshot(table("a"), storage_checkpoint=at(-ahead), report=writer), max_lag=5)
    assert found.health == word
    assert all("ahead of the target's clock" in reason for reason in found.reasons)


def test_how_the_writer_ended() -> None:
    """The error with which the program ended is told for as long as nobody writes."""
    last = report(Phase.ENDED, retry="the disk is full")
    found = status(snapshot(writer="", report=last))
    assert found.reasons[0].endswith("start `storage-consumer run`. Its error was: the disk is full")


def test_a_lag_needs_a_checkpoint() -> None:
    """TSO 0 has no lag, and a clock that runs behind the source's gives no negative one (O10)."""
    assert lag_of(0, NOW) is None
    assert lag_of(at(2), NOW) == 2.0
    assert lag_of(at(-2), NOW) == 0.0


def load_of(name: str, phase: LoadPhase, **more: object) -> Load:
    """A load of a table of database d, whose copy is ten minutes old."""
    values: dict[str, object] = {"source": "file:///e", "low": at(600), "parts": 4, "done": clock_of(2, 0), **more}
    table_name = TableName(schema="d", table=name)
    return Load(table_key=key_of(table_name), name=table_name, load_id="1", phase=phase, **values)  # type: ignore[arg-type]


def test_loads() -> None:
    """What is loaded, refused or wished for is shown with its source; a load that has ended is not."""
    tables = [table(name, "loading" if name == "a" else "running") for name in "abcde"]
    phases = dict(
        zip(
            "abcde",
            (LoadPhase.LOADING, LoadPhase.REFUSED, LoadPhase.REQUESTED, LoadPhase.DONE, LoadPhase.CANCELLED),
            strict=True,
        )
    )
    loads = tuple(load_of(name, phase, error="too old" if name == "b" else "") for name, phase in phases.items())
    found = status(snapshot(*tables, loads=loads))
    reasons = {str(each.name): each.reason for each in found.tables}
    assert reasons == {
        "d.a": "the load from file:///e: 1 of 4 files (0 B)",
        "d.b": "the load from file:///e: nothing was written; too old",
        "d.c": "the load from file:///e: no consumer has looked at the copy yet",
    }
    assert (found.health, found.counts) == (Health.HEALTHY, {"loading": 1, "running": 4})


def test_loads_of_tables_that_stand_still() -> None:
    """Why the table stands still does not hide what became of its load, nor why that waits."""
    tables = [table("a", "halted", error="paused by me"), table("b", "halted", error="no such column")]
    loads = (load_of("a", LoadPhase.REFUSED, error="too old"), load_of("b", LoadPhase.REQUESTED, error="no route"))
    reasons = {str(each.name): each.reason for each in status(snapshot(*tables, loads=loads)).tables}
    assert reasons == {
        "d.a": "paused by me; the load from file:///e: nothing was written; too old",
        "d.b": "no such column; the load from file:///e: the copy does not answer; no route",
    }


def test_a_table_that_catches_up_after_its_load_is_behind() -> None:
    """It counts for no checkpoint, yet a limit of the lag holds for it; while it is loaded, none does."""
    joining = snapshot(table("a", checkpoint=at(400), follows=False), loads=(load_of("a", LoadPhase.JOINING),))
    assert (joining.slowest, joining.needed) == (at(400), at(400))
    found = status(joining, 300)
    assert found.health == Health.BEHIND
    assert found.reasons[0].startswith("that of a table that catches up after its load is 6m40s old")
    assert status(joining, 500).health == Health.HEALTHY
    loading = snapshot(table("a", "loading", checkpoint=0), loads=(load_of("a", LoadPhase.LOADING),))
    assert (loading.slowest, loading.needed) == (at(3), at(600))
    assert status(loading, 300).health == Health.HEALTHY
