"""The events of a table without a key: what is left of many of them, written in one transaction with the table's checkpoint.

Why each event takes effect exactly once, whenever the program is killed:

* Events come in parts that cut no commit ts (`order.keyless.in_parts`), a transaction takes whole parts, and it moves the table's stored
  checkpoint to the last commit ts of them. So at any instant the table holds the events up to its stored checkpoint and no other.
* The stored checkpoint is read in a transaction that claims the task's slot. From then on nobody else moves it: another attempt
  of the task has to take the slot over first, and then the fence stops this one. Events at or below it are left out.
* Each transaction reads it again. If it is there already, the answer to an earlier try's commit was lost; if it is anywhere else
  that cannot be, nothing is written.
* What a transaction writes is made before it begins and is not changed, so that a try after a conflict does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, groupby
from operator import itemgetter

from storage_consumer.apply.keyless_deletes import delete_equal, is_scanned, most_text
from storage_consumer.apply.refused_rows import StatementTooLarge
from storage_consumer.apply.rows import RowStatements
from storage_consumer.apply.statements import delete_images, json_equals
from storage_consumer.downstream.connection import escape
from storage_consumer.errors import RowRefused, TargetUnavailable
from storage_consumer.job.spec import TablePlan
from storage_consumer.order.keyless import Events, Net
from storage_consumer.tso import is_applied

FEW_EVENTS, FEW_BYTES = 10_000, 48 << 20
"""So many events, or bytes of memory for what is left of them, are enough for a transaction."""
MANY_BYTES = 192 << 20
"""So many are enough where deletes go together, in passes over the table: the more events are netted, the fewer passes."""
FEW = 8
"""So many different rows are deleted one by one."""


class Portion:
    """The events of one transaction."""

    def __init__(self, *, in_turn: bool) -> None:
        """Of no events. `in_turn`: they are kept as they are, not netted."""
        self.events = 0
        """How many."""
        self.first = self.last = 0
        """Their commit ts, inclusive."""
        self.in_turn: list[Events] = []
        self.net = Net()
        self.size = 0
        """Bytes of memory that it takes, about."""
        self._keeps = in_turn

    def add(self, events: Events) -> None:
        """Some more events, at least one."""
        self.first = self.first or int(events.ts[0])
        self.last = int(events.ts[-1])
        self.events += len(events)
        if self._keeps:
            self.in_turn.append(events)
            self.size += sum(map(len, events.lines))
        else:
            self.net.add(events)
            self.size = self.net.size


def portions(parts: Iterable[Events], is_enough: Callable[[Portion], bool], *, in_turn: bool) -> Iterator[Portion]:
    """RoundContext for one transaction each, whole ones. `is_enough`: asked after each part."""
    portion = Portion(in_turn=in_turn)
    for part in parts:
        portion.add(part)
        if is_enough(portion):
            yield portion
            portion = Portion(in_turn=in_turn)
    if portion.events:
        yield portion


class KeylessTable:
    """Writes the events of one through the connection of a task."""

    def __init__(self, target: RowStatements, work: TablePlan) -> None:
        """`target`: where they go."""
        self._target = target
        self._work = work
        self._json_equals = ""
        self._most: int | None = None
        """Bytes of one transaction; None: not asked yet."""
        self._scanned: bool | None = None
        """Whether every delete by itself takes a pass over the table; None: not asked yet."""

    def write(self, parts: Iterable[Events]) -> int:
        """Write events; the table's stored checkpoint moves in the same transactions, at ends of commit ts only."""
        stored = self._target.transaction(self._work, self._stored_checkpoint)
        due = chain.from_iterable(part.after(stored).pieces(FEW_EVENTS) for part in parts)
        written = 0
        for portion in portions(due, self._is_enough, in_turn=self._work.replaces):
            written += self._target.transaction(self._work, partial(self._write, portion))
            del portion  # before the next one is made: there is room in memory for one
        return written

    def _is_enough(self, portion: Portion) -> bool:
        """Whether a transaction should take no more."""
        if portion.events < FEW_EVENTS and portion.size < FEW_BYTES:
            return False
        if self._most is None and portion.net.met:
            self._most = self._target.transaction(self._work, self._most_bytes)
        return portion.size >= (self._most or 0) or not portion.net.met

    def _most_bytes(self) -> int:
        """How many bytes of memory are enough for a transaction with deletes."""
        return min(MANY_BYTES, most_text(self._target)) if self._is_scanned() else 0

    def _write(self, portion: Portion) -> int:
        """What one transaction does; the number of events."""
        stored = self._stored_checkpoint()
        if portion.last == stored:  # by an earlier try whose answer was lost
            return portion.events
        if is_applied(portion.first, stored):
            raise TargetUnavailable(
                f"{self._work.name}: somebody else has moved the table's stored checkpoint to {stored}"
            )
        if self._work.replaces:
            self._write_in_turn(portion.in_turn)
        else:
            self._write_net(portion.net)
        self._store_checkpoint(portion.last)
        return portion.events

    def _write_in_turn(self, parts: Iterable[Events]) -> None:
        """Each run of inserts and each delete in its turn, since a row may have taken the place of another one."""
        events = chain.from_iterable(
            zip(part.upserts.tolist(), part.lines, part.ts.tolist(), strict=True) for part in parts
        )
        for upsert, run in groupby(events, key=itemgetter(0)):
            if upsert:
                self._target.replace(self._work, [line for _, line, _ in run])
                continue
            for _, line, ts in run:
                if not self._delete_some(line, 1):
                    raise self._lost(ts)

    def _write_net(self, net: Net) -> None:
        """What is left of the events.

        A delete that finds no row may mean one that was just inserted, of which it tells a value in another form: so it is tried
        again at the end. Not so where the very same row was inserted after the delete.
        """
        found = self._delete(net.deletes)
        surplus = chain.from_iterable([line] * (found[line] - count) for line, count in net.deletes.items())
        self._target.insert(self._work, [*net.inserts.elements(), *surplus])
        for line, count in net.deletes.items():
            lacking = count - found[line]
            if lacking > 0 and (net.inserts[line] or self._delete_some(line, lacking) < lacking):
                raise self._lost(net.deleted_at[line])

    def _lost(self, commit_ts: int) -> RowRefused:
        """The error for a delete without a row."""
        return RowRefused(
            f"{self._work.name}: the delete with commit ts {commit_ts} finds no row with exactly these values in the target; "
            "the table was changed by someone else, or its rows were not complete at the start. Say `storage-consumer table hold`, "
            "make a copy of the table, then say `storage-consumer table reload-done`"
        )

    # deletes

    def _delete(self, deletes: Mapping[bytes, int]) -> Counter[bytes]:
        """Delete rows; how many are gone of each, which may be fewer than it should be, or more."""
        found: Counter[bytes] = Counter()
        if len(deletes) > FEW and self._is_scanned():
            together = delete_equal(self._target, self._work, list(deletes))
            if together is None:
                self._scanned, self._most = False, 0
            found.update(together or {})
        for line, count in deletes.items():
            if found[line] < count:
                found[line] += self._delete_some(line, count - found[line])
        return found

    def _is_scanned(self) -> bool:
        """Whether every delete by itself takes a pass over the table."""
        if self._scanned is None:
            self._scanned = is_scanned(self._target, self._work)
        return self._scanned

    def _delete_some(self, line: bytes, most: int) -> int:
        """Delete up to `most` rows that are equal to this one; how many there were."""
        statement = delete_images(self._work, line, escape, json_equals=self._json(), most=most)
        try:
            return self._target.sized(statement)
        except StatementTooLarge as fault:
            raise self._target.refusal(self._work, line, fault) from None

    def _json(self) -> str:
        """How this server compares JSON by meaning."""
        if not self._json_equals:
            self._json_equals = json_equals(str((self._target.row("SELECT VERSION()") or ("",))[0]))
        return self._json_equals

    # the table's checkpoint

    def _stored_checkpoint(self) -> int:
        """The table's stored checkpoint, 0 if there is none."""
        where = f"table_key = '{escape(self._work.table_key)}'"
        row = self._target.row(
            f"SELECT checkpoint FROM {self._target.state('table_progress')} WHERE {where} FOR UPDATE"
        )
        return int(row[0]) if row else 0

    def _store_checkpoint(self, checkpoint: int) -> None:
        """Move the table's stored checkpoint within the running transaction."""
        names = (self._work.table_key, self._work.name.schema, self._work.name.table)
        values = ", ".join(f"'{escape(name)}'" for name in names)
        self._target.query(
            f"INSERT INTO {self._target.state('table_progress')} "
            "(table_key, schema_name, table_name, checkpoint, state, follows, error) "
            f"VALUES ({values}, {checkpoint}, 'running', 1, '') ON DUPLICATE KEY UPDATE checkpoint = {checkpoint}"
        )
