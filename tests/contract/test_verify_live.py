"""A comparison with a source that can be read as of a commit-ts, and moves on meanwhile."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.store import operated
from storage_consumer.errors import Abandoned, ConfigError
from storage_consumer.model import TSO_PHYSICAL_SHIFT
from storage_consumer.operating.verification import TableVerification
from storage_consumer.plan.journal_entry import DONE, STARTED, Sent
from storage_consumer.rows.comparison import TableLook, TableResult, VerifyOutcome
from storage_consumer.target.source_reading import Reading
from tests.contract.state_rigs import statement
from tests.contract.verify_rigs import SOURCE, Running, VerifyRig
from tests.harness.servers import KINDS

pytestmark = pytest.mark.server
ROWS = [(number, number) for number in range(2_000)]


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """A source that can be read as of a commit-ts."""
    found = VerifyRig(request.getfixturevalue("tidb"), request.getfixturevalue(request.param))
    found.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    found.both("INSERT INTO t VALUES (%s, %s)", rows=ROWS)
    return found


class _Writer(Running):
    """Source and consumer at once: changes at the source, and windows that bring them to the target bit by bit."""

    def __init__(self, rig: VerifyRig) -> None:
        self.windows = 0
        self._rig = rig
        self._dice = random.Random(3)  # noqa: S311 - not for secrets
        self._state = rig.state("consumer")
        super().__init__(self._window, again=True)

    def _window(self) -> None:
        rig = self._rig
        changed = [(self._dice.randrange(1 << 20), self._dice.randrange(2_000)) for _ in range(20)]
        rig.at_source("UPDATE t SET v = %s WHERE id = %s", rows=changed)
        at = rig.now()
        # The source goes on beyond the window.
        rig.at_source("UPDATE t SET v = -1 WHERE id = 7")
        self._state.lease.open_window(1, at, {rig.key("t"): at})
        at_seven = [each for each in changed if each[1] == 7]
        rig.at_target("UPDATE t SET v = %s WHERE id = %s", rows=changed)
        if self.windows and not at_seven:
            rig.at_target("UPDATE t SET v = -1 WHERE id = 7")
        time.sleep(0.05)
        self._state.progress.save(tables=[rig.progress("t", at)], sequences={}, checkpoint=at, storage_checkpoint=at)
        self.windows += 1

    def close(self) -> None:
        super().close()
        self._state.close()


if "tidb" in KINDS:  # else there is no such source

    def test_a_source_that_moves_on(rig: VerifyRig) -> None:
        """What was written at the source after the checkpoint is not in the comparison."""
        rig.at_rest("t")
        rig.at_source("UPDATE t SET v = v + 1", "DELETE FROM t WHERE id < 100", "ALTER TABLE t ADD COLUMN later INT")
        assert rig.one("t").outcome is VerifyOutcome.EQUAL

    def test_a_snapshot_that_the_server_ignores(rig: VerifyRig) -> None:
        """A TiDB that takes the setting and reads the present is refused."""
        at = rig.at_rest("t")
        with closing(Reading(replace(rig.settings, port=rig.source.port), "", "source")) as reading:
            reading.begin_at(at)
            reading.refuse_ignored(at, f"`{SOURCE}`.`t`")
            reading.rows("SET SESSION tidb_snapshot = ''")
            with pytest.raises(ConfigError, match="ignores tidb_snapshot"):
                reading.refuse_ignored(at, f"`{SOURCE}`.`t`")
        rig.source.query("DELETE FROM mysql.tidb WHERE variable_name = 'tikv_gc_safe_point'")
        with pytest.raises(ConfigError, match="tikv_gc_safe_point"):
            rig.compared()

    def test_a_snapshot_that_was_collected(rig: VerifyRig) -> None:
        """Where the source no longer has the rows of a table that stands still, that is said."""
        rig.at_rest("t")
        rig.source.query(
            "UPDATE mysql.tidb SET variable_value = '20370101-00:00:00 +0000' WHERE variable_name = 'tikv_gc_safe_point'"
        )
        result = rig.one("t")
        assert result.outcome is VerifyOutcome.NOT_COMPARED
        assert "no longer has its rows" in result.reason
        assert "tidb_gc_life_time" in result.reason

    def test_while_both_sides_move(rig: VerifyRig) -> None:
        """A consumer writes windows as the program does, in several transactions each: not one comparison finds a difference."""
        at = rig.at_rest("t")
        found = []
        with closing(_Writer(rig)) as writer:
            until = time.monotonic() + 8
            while time.monotonic() < until:
                found.append(rig.one("t", wait=120.0, chunk_rows=500))
        assert writer.fault is None, writer.fault
        assert {(each.outcome, each.reason) for each in found} == {(VerifyOutcome.EQUAL, "")}, found
        assert len({each.checkpoint for each in found} - {at}) > 1
        assert writer.windows > 3

    def test_a_statement_at_exactly_the_checkpoint(rig: VerifyRig) -> None:
        """The source's snapshot holds its effect, and the target has not run it: no difference is told, and the table is compared after it."""
        rig.at_source("TRUNCATE TABLE t")
        at = rig.at_rest("t")
        step = statement(f"{SOURCE}/t", version=at, query="TRUNCATE TABLE `t`")
        with closing(rig.state()) as state:
            state.history.keep([(rig.key("t"), step.definition)])

            def run() -> None:
                time.sleep(1)
                state.journal.record(step, STARTED, run=Sent(statement="TRUNCATE", structure_before=""))
                rig.at_target("TRUNCATE TABLE t")
                state.journal.record(step, DONE, tables=[rig.progress("t", rig.now())])

            with closing(Running(run)) as running:
                result = rig.one("t", wait=60.0)
        assert running.fault is None, running.fault
        assert (result.outcome, result.rows, result.differences) == (VerifyOutcome.EQUAL, 0, ())

    def test_other_tables_do_not_wait_for_one_that_differs(rig: VerifyRig) -> None:
        """They are compared while the consumer comes so far that the difference counts; and a kill meanwhile leaves none that does not count."""
        rig.both("CREATE TABLE u (id INT PRIMARY KEY)")
        at = rig.at_rest("t", "u")
        rig.at_target("UPDATE t SET v = -1 WHERE id = 5")
        heard: list[str] = []
        stored: list[dict[str, VerifyOutcome]] = []
        with closing(rig.state("consumer")) as state:

            def consume(result: TableResult) -> None:
                heard.append(result.table.table)
                with closing(operated(rig.settings, "")) as desk:
                    stored.append({each.table.table: each.outcome for each in desk.verified.all()})
                later = at + (11_000 << TSO_PHYSICAL_SHIFT)
                tables = [rig.progress(name, later) for name in ("t", "u")]
                state.progress.save(tables=tables, sequences={}, checkpoint=later, storage_checkpoint=later)

            report = rig.report(heard=consume, workers=1, wait=20.0)
        assert {each.table.table: each.outcome for each in report.tables} == {
            "t": VerifyOutcome.DIFFERENT,
            "u": VerifyOutcome.EQUAL,
        }
        assert (heard, stored[0]) == (["u", "t"], {"t": VerifyOutcome.UNFINISHED, "u": VerifyOutcome.EQUAL})
        assert stored[1]["t"] is VerifyOutcome.DIFFERENT

    def test_broken_off_before_a_difference_counts(rig: VerifyRig) -> None:
        """Nothing is stored but that the comparison is not finished, and it can be resumed."""
        rig.at_rest("t")
        rig.at_target("UPDATE t SET v = -1 WHERE id = 5")
        stop = threading.Event()
        threading.Timer(3, stop.set).start()
        with closing(rig.state("consumer")), pytest.raises(Abandoned):
            rig.report(stop=stop, wait=30.0)
        with closing(operated(rig.settings, "")) as desk:
            assert [each.outcome for each in desk.verified.all()] == [VerifyOutcome.UNFINISHED]
            assert [each.outcome for each in desk.verified.standing()] == [VerifyOutcome.UNFINISHED]
        rig.at_target("UPDATE t SET v = 5 WHERE id = 5")
        assert rig.one("t", resume=True).outcome is VerifyOutcome.EQUAL

    def test_a_statement_between_two_cuts(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a cut before it showed is no difference after it, though the structure is the same: the table is compared again."""
        rig.at_source("DELETE FROM t WHERE id < 50")
        at = rig.at_rest("t")
        step = statement(f"{SOURCE}/t", version=at, query="ALTER TABLE `t` TRUNCATE PARTITION p")
        stop, goes_on = threading.Event(), TableVerification._may_go_on

        def broken_off(work: TableVerification, look: TableLook) -> None:
            stop.set()
            goes_on(work, look)

        monkeypatch.setattr(TableVerification, "_may_go_on", broken_off)
        with closing(rig.state("consumer")) as state:
            state.history.keep([(rig.key("t"), step.definition)])
            with pytest.raises(Abandoned):
                rig.report(stop=stop)
            monkeypatch.undo()
            state.journal.record(step, STARTED, run=Sent(statement="…", structure_before=""))
            rig.at_target("DELETE FROM t WHERE id < 50")
            state.journal.record(step, DONE, tables=[rig.progress("t", rig.now())])
            result = rig.one("t", resume=True, wait=2.0)
        assert (result.outcome, result.rows, result.differences) == (VerifyOutcome.EQUAL, len(ROWS) - 50, ())

    def test_a_statement_that_stopped_the_table(rig: VerifyRig) -> None:
        """Where nothing moves, what differs is told with the statement that may explain it."""
        rig.at_source("TRUNCATE TABLE t")
        at = rig.at_rest("t", state="halted")
        with closing(rig.state()) as state:
            definition = statement(f"{SOURCE}/t", version=at, query="TRUNCATE TABLE `t`").definition
            state.history.keep([(rig.key("t"), definition)])
            state.lease.release()
        result = rig.one("t")
        assert (result.outcome, result.extra) == (VerifyOutcome.DIFFERENT, len(ROWS))
        assert f"the statement of version {at} follows at the source" in " ".join(result.notes)
