"""What must hold after every call of a process, before every statement, and at the end of every round (promises 1 to 4 of docs/architecture.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

from storage_consumer.bucket.metadata import RESTART_MS
from storage_consumer.config.settings import Limits
from storage_consumer.model import TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import TableDecision, is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.summary import RoundSummary, TableSummary
from storage_consumer.tso import is_settled
from tests.campaigns.simulation.left_out import LeftOut
from tests.campaigns.simulation.loaded import Loaded, tick_of
from tests.campaigns.simulation.names import is_colliding
from tests.campaigns.simulation.shapes import NULL, Image
from tests.campaigns.simulation.source import Change, Moment, Picture, Source, Table
from tests.campaigns.simulation.twins import Differs, InDoubt, Records, Refused, Torn, Unread
from tests.harness.small_bucket import ts
from tests.harness.twins.records import Row

_STORES = frozenset(("MemoryProgress.save", "MemoryJournal.record", "MemoryLease.open_window", "MemoryJournal.refused"))
_STORES |= frozenset(f"MemoryLoads.{call}" for call in ("begin", "refuse", "advance", "finish", "joined"))
_WRITES = frozenset(("write_together", "write_runs", "write_events"))
Keyed = dict[str, Image]


class Owner(Protocol):
    """The process that made a call."""

    @property
    def epoch(self) -> int:
        """Of its lease."""
        ...

    @property
    def limits(self) -> Limits:
        """Where its rounds end before everything is done."""
        ...


_RESTART = RESTART_MS // 1000
"""Ticks by which another changefeed may begin before what the target has."""
_CYCLE = "an intermediate step of a rename cycle"


class Judge:
    """Holds the target against the source; every method raises `Differs` where they are not as promised."""

    def __init__(self, source: Source, records: Records) -> None:
        """Nothing has happened."""
        self._source = source
        self._records = records
        self.told = 0
        """Highest checkpoint (a tick) that ``metadata`` has shown."""
        self._feed = 0
        self._written_to = 0
        """Highest commit-ts up to which any process has begun to write rows; one that was killed may have left such a window open."""
        self._tables: dict[str, int] = {}
        self.reads: Callable[[Change], bool] = lambda _: True
        """Whether something says which columns a row has."""
        self.begun_at = 0
        """Up to which tick the source had what no file shows, since there was no changefeed yet."""
        self.begun_anew = 0
        """Up to which tick the target had everything when another changefeed was given the emptied prefix."""
        self.left_out = LeftOut(source)
        self.loaded = Loaded(source, records)
        self._lowest = 0
        self._paused_at: dict[TableDecision, int] = {}
        """Pauses that were obeyed → the stored checkpoint of their table then."""
        self.may_stop = False
        """Whether people do so much to the target that any table may halt."""
        self.look_at_hands: Callable[[], None] = lambda: None
        """Looks at what is shown of what people have changed in the target."""
        self._skipped: dict[TableName, list[Row]] = {}
        """The rows of skipped tables after the last call."""

    # after every call

    def called(self, where: str, process: Owner) -> None:
        """A call has taken effect: ``Class.method``."""
        method = where.partition(".")[2]
        self.loaded.called(where)
        if method in _WRITES:
            self._only_in_its_window(where, process)
            reach = self._records.storage_checkpoint
            self._written_to = max(self._written_to, min(reach, process.limits.until or reach))
            self._skipped_stay()
            self._look()
        elif where in _STORES:
            self._only_the_owner(where, process)
            self._nothing_fell()
            self._paused_stay()
            self._look()
            self.look_at_hands()
        elif method == "execute_ddl":
            self._look()
        self._note_skipped()

    def _only_the_owner(self, where: str, process: Owner) -> None:
        """G3: nothing is written after another process got the lease."""
        if process.epoch != self._records.epoch:
            raise Differs(
                f"{where} by the owner of epoch {process.epoch}, when that of {self._records.epoch} is the writer"
            )

    def _only_in_its_window(self, where: str, process: Owner) -> None:
        """The same for rows. They are fenced by slots (docs/architecture.md), so from when a new owner has opened a window.

        It does so before it reads what is stored, so that what was written until then counts like all that came before.
        """
        if process.epoch != self._records.window[0]:
            raise Differs(f"{where} by the owner of epoch {process.epoch} in the window {self._records.window}")

    def _nothing_fell(self) -> None:
        """Stored checkpoints never fall."""
        records = self._records
        stored = {key: table.checkpoint for key, table in records.tables.items()}
        if fell := [key for key, before in self._tables.items() if stored.get(key, 0) < before]:
            raise Differs(f"the stored checkpoint fell: {[(k, self._tables[k], stored.get(k)) for k in fell]}")
        if records.checkpoint < self._feed:
            raise Differs(f"the stored checkpoint fell: from {self._feed} to {records.checkpoint}")
        for key in records.tables.keys() - self.loaded.apart():
            table = records.tables[key]
            reached = max(table.checkpoint, records.checkpoint if table.follows else 0)
            # A table that is gone has nothing to reach.
            if table.state not in (TableState.EXCLUDED, TableState.DROPPED) and reached < records.lowest:
                raise Differs(f"{records.lowest} is told to others, but {key} is at {reached}")
        if records.lowest > records.checkpoint:
            raise Differs(f"{records.lowest} is told to others, but idle tables are at {records.checkpoint}")
        if records.lowest < self._lowest:
            raise Differs(f"the checkpoint that is told to others fell: from {self._lowest} to {records.lowest}")
        self._tables, self._feed, self._lowest = stored, records.checkpoint, records.lowest

    def _paused_stay(self) -> None:
        """A table that an operator paused goes no further, whoever writes."""
        records = self._records
        for key, decision in records.table_decisions.items():
            seen = records.obeyed.get(key)
            if seen is None or seen.decision != decision or decision.verb != "pause" or seen.refusal:
                continue
            table = records.tables[key]
            # Before its CREATE TABLE a table has nothing that a pause could stop; it passes the statements of its database.
            name = TableName(schema=table.schema, table=table.table).folded()
            # By a statement that copies hold its name may have gone to another table.
            if name not in records.owners or self.left_out.has(name):
                continue
            reached = table.checkpoint
            if reached != self._paused_at.setdefault(decision, reached):
                raise Differs(f"{key} was paused at {self._paused_at[decision]}, and is at {reached}")

    def _skipped_stay(self) -> None:
        """No rows are written to a table that an operator has left out."""
        for name, rows in self._skipped.items():
            if self._records.rows.get(name, []) != rows:
                raise Differs(f"{name} is left out, but was written to")

    def _note_skipped(self) -> None:
        records = self._records
        skipped = (
            records.places.name(table.target or TableName(schema=table.schema, table=table.table)).folded()
            for table in records.tables.values()
            if is_skipped(table.state, table.error)
        )
        self._skipped = {name: list(records.rows.get(name, [])) for name in skipped}

    def _watched(self) -> list[tuple[TableName, int]]:
        """Names in the target and numbers of the tables that have nothing to do with a skipped one, and are not being loaded."""
        return [
            (name, uid)
            for name, uid in self._records.owners.items()
            if uid not in self.left_out.uids
            and not self.left_out.has(name)
            and name not in self._records.begun
            and not self._is_left_behind(name, uid)
        ]

    def _is_left_behind(self, name: TableName, uid: int) -> bool:
        """Whether the source has the table no more under its name, so that whatever is there is for an operator to drop."""
        stored = self._records.tables.get(key_of(name))
        if stored is None or stored.state == TableState.DROPPED:
            return stored is not None
        # One that is paused in the round in which a copy under another name takes its place keeps the state that an operator gave it.
        copied = self._records.copies.get(key_of(name), Copies()).copied_at
        moments = [moment for moment in self._source.known[uid].moments if moment.tick <= tick_of(stored.checkpoint)]
        if not (moments and self._records.applied.get(name, 0) <= copied < stored.checkpoint):
            return False
        return moments[-1].picture is None or moments[-1].name != (name.schema, name.table)

    def _look(self) -> None:
        self.loaded.look()
        # All that people do shows in the structure, and files come late where TiCDC has repeated them.
        late = [each.reason for each in self._records.verified.values() if not (each.structure or each.checkpoint)]
        if late and not self.may_stop:
            raise Differs(f"a table is in doubt, whose rows are all there: {late}")
        for name, uid in self._watched():
            self._is_at_its_place(name, self._source.known[uid], exactly=self._is_settled(name))

    def _is_settled(self, name: TableName) -> bool:
        """Whether the notes of the windows say that no rows beyond the table's stored checkpoint are in the target."""
        stored = self._records.tables.get(key_of(name))
        if stored is None:
            return False
        reached = max(stored.checkpoint, self._records.checkpoint if stored.follows else 0)
        return is_settled(self._records.writes.get(key_of(name), 0), reached)

    def _position(self, name: TableName, uid: int) -> tuple[int, int]:
        """Ticks up to which rows and statements of a table are in the target, by what is stored and what took effect."""
        records = self._records
        applied = records.applied.get(name, 0)
        stored = records.tables.get(key_of(name))
        if self._has_passing_name(name, uid, applied):
            # A name that no files are of has progress of its own, which means nothing for this table.
            return tick_of(applied), tick_of(applied)
        rows = max(applied, stored.checkpoint if stored else 0)
        if stored is None or stored.follows:
            rows = max(rows, records.checkpoint)
        return tick_of(rows), tick_of(applied)

    def _has_passing_name(self, name: TableName, uid: int, version: int) -> bool:
        """Whether a table has a name that only a step of a cycle of renames gives it."""
        moments = self._source.known[uid].moments
        return any(
            m.is_statement and m.tick == tick_of(version) and m.name != (name.schema, name.table) for m in moments
        )

    def _is_at_its_place(self, name: TableName, table: Table, *, exactly: bool) -> None:
        """The rows are the source's at the table's stored checkpoint.

        Not `exactly`: a commit range's last states are written before its progress (final states, docs/architecture.md), so a key of
        which a row is between the two may have any state in there already, or none where a row with the same unique
        value has taken its place. A keyless table has no such grace: its progress goes with its rows.
        """
        rows, statements = self._position(name, table.uid)
        picture, later = self._picture(table, rows, statements)
        there = self._records.structures[name]
        if tuple(column.name for column in there.columns) != picture.columns:
            raise Differs(f"{name}: columns {[c.name for c in there.columns]}, at the source {picture.columns}")
        found = self._rows(name, picture)
        if found == picture.rows:
            return
        # The row that takes the place of another one's former state is not written if the target finds it equal to a third.
        pictures = (m.picture for m in later if m.picture is not None)
        if not exactly and any(later.shape.is_torn(later.rows) for later in pictures):
            return
        if exactly or not picture.shape.keys or not _may_be(found, picture, later):
            raise Differs(
                f"{name} at tick {rows}, statements up to {statements}: {found}, at the source {picture.rows}; later there "
                f"{[m.picture.rows for m in later if m.picture]}"
            )

    def _rows(self, name: TableName, picture: Picture) -> tuple[Image, ...]:
        rows = self._records.rows.get(name, ())
        texts = (tuple(row[column] for column in picture.columns) for row in rows)
        return tuple(sorted(tuple(NULL if text is None else text for text in row) for row in texts))

    def _picture(self, table: Table, rows: int, statements: int) -> tuple[Picture, list[Moment]]:
        """The table at a place in its history, and what follows there up to what is stored and the next statement."""
        found: Picture | None = None
        later: list[Moment] = []
        for moment in table.moments:
            if moment.is_statement and moment.tick > statements:
                # One that moves what only the former changefeed showed halts; the end of the round tells.
                may_halt = self.begun_anew and "RENAME" in self._source.statements[moment.tick].text
                if rows > moment.tick and not may_halt:
                    raise Differs(f"{table.name} is at {rows}, but the statement at {moment.tick} did not run")
                break
            if moment.tick <= rows:
                found = moment.picture
            elif moment.tick <= self.told:
                later.append(moment)
        if found is None:
            raise Differs(f"a table is there that the source does not have at {rows} and {statements}: {table.name}")
        return found, later

    # before every statement

    def touched_by(self, version: int) -> frozenset[int]:
        """Numbers of the tables that a statement touches."""
        return self._source.statements[tick_of(version)].uids

    def refused(self, version: int, name: TableName) -> None:
        """A statement on a table is refused for a reason that lies in the target: its tables may stand."""
        self.left_out.add((name.schema, name.table), tick_of(version) - 1)

    def copies(self, load_id: str, name: TableName, *, alone: bool) -> int:
        """The number of the source's table that a load makes of a name."""
        return self.loaded.copies(load_id, name, alone=alone)

    def begins(self, version: int, name: TableName) -> None:
        """A statement runs only when all rows of its table before it are in, and none after it."""
        tick, records = tick_of(version), self._records
        self.loaded.begins(version, name)
        if (uid := records.owners.get(name)) is None or uid in self.left_out.uids or self.left_out.has(name):
            return
        ran = records.applied.get(name, 0) >= version
        picture, _ = self._picture(self._source.known[uid], tick, tick if ran else tick - 1)
        if (found := self._rows(name, picture)) != picture.rows:
            raise Differs(f"the statement at {tick} begins when {name} has {found}, at the source {picture.rows}")

    # at the end of a round

    def round_over(
        self,
        summary: RoundSummary,
        *,
        may_wait: bool,
        takes_last: bool,
        until: int = 0,
        stays: bool = False,
        part_of_version: bool = False,
    ) -> None:
        """G1: the target is as the source at the storage checkpoint, and no table is behind the checkpoint that is told.

        `may_wait`: a file or a statement is not there yet. `takes_last`: a statement at this very ts has to run too.
        `until`: where the run is to end, 0 for nowhere. `stays`: an operator has paused a table, for which others may have to wait.
        `part_of_version`: a statement at this very ts was taken though others of it may not be there yet, so a rename may meet a name
        that one of those frees: it halts, and runs at the next start.
        """
        self._is_reached(summary)
        apart = {str(TableName(schema=schema, table=table)) for schema, table in self.left_out.names}
        apart |= self.loaded.may_halt
        stopped = [table for table in summary.halted if not is_colliding(table.table) and table.table not in apart]
        # Where another file may still come in its place, its table waits.
        if any(map(self._is_unread, summary.tables)) and all(map(self._is_unread, stopped)):
            raise Unread
        if any(map(self._lacks_files, summary.tables)):
            raise Refused
        if stopped and self.may_stop:
            for table in stopped:
                schema, _, name_there = table.table.partition(".")
                self.left_out.add((schema, name_there), self.told - 1)
            return
        if stopped:
            # Another row may have a unique value by then: the table goes on with the first run that goes further.
            if not (0 < until < summary.storage_checkpoint and all(self._is_ahead(table, until) for table in stopped)):
                self._may_halt(stopped, summary.storage_checkpoint if part_of_version else 0)
            return
        waiting = {table.table: table.error for table in summary.tables if table.state == "waiting"}
        for name, uid in self._watched():
            # A table that waits for a file may stand in the middle of a window that a killed process has left open, and so may any
            # table where a round ends before that window does.
            ends_within = bool(until or summary.ended_early) and self._written_to > summary.checkpoint_running
            # A paused table too.
            exactly = not ends_within and not stays and (not may_wait or str(name) not in waiting)
            self._is_at_its_place(name, self._source.known[uid], exactly=exactly)
        if summary.ended_early or stays or (waiting and may_wait):
            return
        if 0 < until < summary.storage_checkpoint:
            # What is mixed with a table that is left out may stand anywhere.
            if not waiting.keys() & apart:
                self._is_at_the_end(summary, until, waiting)
            return
        rest = [table for table in summary.tables if not is_colliding(table.table)]
        # Whatever is mixed with a skipped table may stand, and so holds back the checkpoint.
        held = any(table.table in apart for table in summary.tables)
        waiting = {name: error for name, error in waiting.items() if name not in apart}
        behind = any(table.checkpoint < summary.storage_checkpoint for table in rest if table.table not in apart)
        behind |= not summary.halted and not held and summary.checkpoint != summary.storage_checkpoint
        if waiting or behind:
            raise Differs(f"stands at {summary.checkpoint}, not at {summary.storage_checkpoint}: {waiting}")
        self._is_whole(tick_of(summary.storage_checkpoint), takes_last=takes_last)

    def _is_reached(self, summary: RoundSummary) -> None:
        """All tables that count are at the checkpoint that is told."""
        behind_all = [table for table in summary.tables if table.checkpoint < summary.checkpoint]
        behind_all = [table for table in behind_all if not self._is_skipped(table.table)]
        if any(table.table not in self.loaded.names_apart for table in behind_all):
            raise Differs(f"{summary.checkpoint} is told, but not all tables are there: {summary.tables}")
        self.loaded.note_caught_up()
        if summary.checkpoint > summary.checkpoint_running:
            raise Differs(f"{summary.checkpoint} is told, but running tables are at {summary.checkpoint_running}")

    def _may_halt(self, stopped: list[TableSummary], version: int) -> None:
        """Tables halt only at a rename that met a name, or missed one: after a copy, or at a version that is not all there (0: none)."""
        if bool(self.loaded.highest or self._records.floor) and all(map(_is_in_doubt, stopped)):
            raise InDoubt
        torn = [table for table in stopped if " was not written, for the target holds " in table.error]
        if torn and all(map(self._is_torn, torn)):
            raise Torn
        if not (version and all(_met_name_at(table, version) for table in stopped)):
            raise Differs(f"halted: {[table.error for table in stopped]}")

    def exchanged(self, applied: int) -> None:
        """Another changefeed begins in the emptied prefix; up to a tick (`applied`) the target has all of the former one's."""
        self.begun_anew = applied

    def may_refuse(self, error: str) -> bool:
        """Whether a process may end because of another changefeed: what it shows begins after what that process has seen, or long before."""
        begin, taken = re.search(r"which begin at (\d+)", error), re.search(r"were taken up to (\d+)", error)
        if begin is None or not self.begun_anew:
            return False
        # One that was paused knows less than the target has.
        reached = min(self.begun_anew, tick_of(int(taken[1]))) if taken else self.begun_anew
        return not 0 <= reached - tick_of(int(begin[1])) <= _RESTART

    def _lacks_files(self, table: TableSummary) -> bool:
        """Whether a table waits for files that went with the former changefeed, or halts since a statement means some."""
        reasons = ("waits for file number", "vanished before", "a database that does not appear in the bucket")
        return bool(self.begun_anew) and any(reason in table.error for reason in reasons)

    def _is_unread(self, table: TableSummary) -> bool:
        """Whether a table has rows of which nothing says which columns they have."""
        if "a column selector" not in table.error and "no header line says which these are" not in table.error:
            return False
        known = {one.uid for one in self._source.known if any(".".join(m.name) == table.table for m in one.moments)}
        rows = (entry for entry in self._source.log if isinstance(entry, Change) and entry.uid in known)
        return any(row.tick <= self.told and not self.reads(row) for row in rows)

    def _is_torn(self, table: TableSummary) -> bool:
        """Whether the source has come to hold two rows of a table that the target finds equal.

        Or one after the other, where rows of beyond the table's checkpoint may be in the target: a process that was killed may have
        written further than the commit range of the next one.
        """
        known = [one for one in self._source.known if any(".".join(m.name) == table.table for m in one.moments)]
        # A copy may be of a later moment than what the bucket shows.
        reached = max(self.told, tick_of(max(self.loaded.highest, self._records.floor)))
        pictures = [m.picture for one in known for m in one.moments if m.picture is not None and m.tick <= reached]
        keys, writes = self._keys(table), self._records.writes
        is_open = any(key in keys and not is_settled(upto, table.checkpoint) for key, upto in writes.items())
        rows = [row for picture in pictures for row in picture.rows]
        return any(
            picture.shape.is_torn(picture.rows) or (is_open and picture.shape.is_respelled(rows))
            for picture in pictures
        )

    def _is_ahead(self, table: TableSummary, until: int) -> bool:
        """Whether a table lacks room for a row, and an interrupted run may have written rows of it from after the end of this one."""
        noted = max((self._records.writes.get(key, 0) for key in self._keys(table)), default=0)
        return " was not written, for the target holds " in table.error and noted > until

    def _keys(self, table: TableSummary) -> set[str]:
        return {key for key, each in self._records.tables.items() if f"{each.schema}.{each.table}" == table.table}

    def says_why(self, summary: RoundSummary) -> None:
        """Where tables stand for good, one of them is halted, with an error that an operator sees."""
        stood = {f"{e.schema}.{e.table}" for e in self._records.tables.values() if is_skipped(e.state, e.error)}
        counted = [table for table in summary.tables if not is_colliding(table.table) and table.table not in stood]
        states = {table.table: table.state for table in counted}
        seen = [table for table in summary.halted if table in counted]
        # The gap timeout halts a table that waits for the rest of a cycle; here it lasts for ages.
        limited = any(_CYCLE in table.error for table in summary.tables if states.get(table.table) == "waiting")
        if "waiting" in states.values() and not (seen or limited):
            raise Differs(f"tables wait for ever, and none is halted: {states}")

    def _is_skipped(self, shown: str) -> bool:
        # The decision stays when a load ends it.
        return any(
            each.state == TableState.EXCLUDED and f"{each.schema}.{each.table}" == shown
            for each in self._records.tables.values()
        )

    def _is_at_the_end(self, summary: RoundSummary, until: int, waiting: dict[str, str]) -> None:
        """The target is as the source at the end of a run, unless an earlier run went beyond it."""
        if (
            waiting
            or (not summary.halted and summary.checkpoint < until)
            or not (summary.reached_until or summary.halted)
        ):
            raise Differs(f"stands at {summary.checkpoint}, not at the end {until}: {waiting}")
        beyond = [table for table in self._records.tables.values() if table.checkpoint > until]
        ran_beyond = any(version > until for _, version in self._records.ran)
        if self._records.checkpoint == until and not (beyond or ran_beyond) and self._written_to <= until:
            self._is_whole(tick_of(until), takes_last=True)

    def _is_whole(self, tick: int, *, takes_last: bool) -> None:
        """All tables of the source at a tick are there, and no others. A statement at this very tick may wait (promise 1)."""
        last = self._source.statements.get(tick)
        # Statements of a load have the copy's TSO as their version.
        own = (version for text, version in self._records.ran if text.startswith(_VERBS))
        some = sum(version == ts(tick) for version in own)
        if last is not None and 0 < some < len(last.files) and not takes_last:
            # A process with --once was stopped between these renames. One that runs on does not take a statement at this very
            # ts before it has stood still for a while (promise 1), and sees to the rest then.
            return
        # What a feed began with holds the statement.
        ran = takes_last or some > 0 or self._records.floor >= ts(tick)
        before, after = (self._source.at(tick, with_statement=with_statement) for with_statement in (ran, True))
        # A copy as of this very ts brings what the statement leaves of its table, whether or not that has run.
        loaded = {name for name, version in self._records.applied.items() if version == ts(tick)}
        expected = {
            **before,
            **{name: after[name] for name in after if TableName(schema=name[0], table=name[1]) in loaded},
        }
        names = {
            TableName(schema=name[0], table=name[1]): picture
            for name, picture in expected.items()
            if name not in self.left_out.names
        }
        tables = {name for name, each in self._records.structures.items() if not each.is_view}
        if names.keys() != {name for name in tables if not self.left_out.has(name)}:
            raise Differs(
                f"at tick {tick}: tables {sorted(map(str, self._records.structures))}, at the source {sorted(map(str, names))}"
            )
        for name, picture in names.items():
            if (found := self._rows(name, picture)) != picture.rows:
                raise Differs(f"at tick {tick}: {name} has {found}, at the source {picture.rows}")
        try:
            self._has_its_views(tick, with_statement=ran)
        except Differs:
            # A copy holds no views, so what made or ended one at this very ts may still be to come.
            if takes_last or some:
                raise
            self._has_its_views(tick, with_statement=False)

    def _has_its_views(self, tick: int, *, with_statement: bool) -> None:
        """Each view of the source at a tick is there, with its columns, whose tables are as they were, and no other one is."""
        structures = self._records.structures
        views = next((views for at, views in reversed(self._source.views) if at < tick + with_statement), {})
        expected = {TableName(schema=name[0], table=name[1]): view for name, view in views.items()}
        there = {name for name, each in structures.items() if each.is_view and not self.left_out.has(name)}
        if surplus := there - expected.keys():
            raise Differs(f"at tick {tick}: views {sorted(map(str, surplus))}, which the source has no more")
        for name, view in expected.items():
            reads = TableName(schema=view.reads[0], table=view.reads[1])
            is_known = view.tick > self.begun_at and not (self.left_out.has(name) or self.left_out.has(reads))
            shown = [column.name for column in structures[name].columns] if name in there else list(view.columns)
            # What an earlier statement made of it stays while the last one is left out.
            ran = any(version == ts(view.tick) for _, version in self._records.ran)
            if ran and shown != list(view.columns):
                raise Differs(f"at tick {tick}: the view {name} shows {shown}, at the source {view.columns}")
            # Those that the copy lacks with which the feed began are made once the bucket is beyond it.
            is_known &= tick > tick_of(self._records.floor)
            there_now = [column.name for column in structures[reads].columns] if reads in structures else None
            can_be = there_now is not None and (there_now == shown or (view.lists and {*shown} <= {*there_now}))
            if is_known and can_be and name not in there:
                raise Differs(f"at tick {tick}: there is no view {name}, though there is {reads}")


_VERBS = ("CREATE ", "DROP ", "RENAME ", "ALTER ", "TRUNCATE ")
"""What the statements of the bucket begin with; those of loads begin with the load's id."""


def _is_in_doubt(table: TableSummary) -> bool:
    """Whether a table halts at a rename that met a name, or missed one."""
    return "RENAME TABLE" in table.error and (" exists" in table.error or "error 1146" in table.error)


def _met_name_at(table: TableSummary, version: int) -> bool:
    """Whether a table halts at a rename of this version that met a name."""
    return "RENAME TABLE" in table.error and " exists" in table.error and f"version {version} " in table.error


def _may_be(found: tuple[Image, ...], picture: Picture, later: list[Moment]) -> bool:
    """Whether each key that is not as in the picture has a state that it comes to later, or is pushed out by one that does."""
    key = picture.shape.keys[0]
    base, there = _keyed(picture.rows, key), _keyed(found, key)
    if len(there) != len(found):
        return False
    coming = dict[str, set[Image | None]]()
    for before, after in _steps(base, later, key):
        for text in before.keys() | after.keys():
            if before.get(text) != after.get(text):
                coming.setdefault(text, {None}).add(after.get(text))
    other = [text for text in base.keys() | there.keys() if base.get(text) != there.get(text)]
    return all(there.get(text) in coming.get(text, ()) for text in other)


def _steps(base: Keyed, later: list[Moment], key: int) -> Iterator[tuple[Keyed, Keyed]]:
    before = base
    for moment in later:
        if moment.picture is not None:
            after = _keyed(moment.picture.rows, key)
            yield before, after
            before = after


def _keyed(rows: tuple[Image, ...], key: int) -> Keyed:
    return {row[key]: row for row in rows}
