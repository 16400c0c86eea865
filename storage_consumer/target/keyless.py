"""The events of tables without a key: what is left of many of them, written in one transaction with the table's checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from storage_consumer.checkpoint import is_applied
from storage_consumer.errors import RowRefused
from storage_consumer.ordering import runs
from storage_consumer.target.connection import escape
from storage_consumer.target.images import delete_equal, is_scanned
from storage_consumer.target.refusals import StatementTooLarge
from storage_consumer.target.rows import RowStatements
from storage_consumer.target.statements import delete_images, json_equals
from storage_consumer.work import TableWork

Group = tuple[int, list[tuple[bool, bytes]]]
"""A commit ts, and its events: whether each leaves a row behind, and the row's line; deletes first."""
FEW_EVENTS, MANY_EVENTS = 10_000, 200_000
"""Of one transaction: where deletes go one by one, and where they go together."""
PORTION_SIZE = 48 << 20
"""Bytes of row text of one transaction."""
FEW = 8
"""So many different rows are deleted one by one."""


def portions(groups: Iterable[Group], most: Callable[[], int]) -> Iterator[list[Group]]:
    """Groups for one transaction each; a group is never cut. `most`: how many events are enough for one, asked anew for each."""
    held: list[Group] = []
    events = size = 0
    for group in groups:
        if held and (events >= most() or size >= PORTION_SIZE):
            yield held
            held, events, size = [], 0, 0
        held.append(group)
        events += len(group[1])
        for _, line in group[1]:
            size += len(line)
    if held:
        yield held


def netted(events: Iterable[tuple[bool, bytes]]) -> tuple[Counter[bytes], list[bytes]]:
    """The rows to delete, by number, and then those to insert, which leave behind what all events in sequence do.

    A delete takes back an equal insert before it: which of two equal rows goes makes no difference. An insert does not make up for
    a delete before it, so that each delete that is left must find a row that is in the table now.
    """
    inserts: Counter[bytes] = Counter()
    deletes: Counter[bytes] = Counter()
    for upsert, line in events:
        if upsert:
            inserts[line] += 1
        elif inserts.get(line):
            inserts[line] -= 1
        else:
            deletes[line] += 1
    return deletes, list(inserts.elements())


class KeylessTable:
    """Writes the events of one through the connection of a task."""

    def __init__(self, target: RowStatements, work: TableWork) -> None:
        """`target`: where they go."""
        self._target = target
        self._work = work
        self._json_equals = ""
        self._scanned: bool | None = None
        """Whether every delete by itself takes a pass over the table; None: not asked yet."""

    def write(self, groups: Iterable[Group]) -> int:
        """Write events; the table's stored checkpoint moves in the same transactions, at ends of commit ts only."""
        parts = portions(groups, lambda: MANY_EVENTS if self._scanned else FEW_EVENTS)
        return sum(self._target.transaction(self._work, partial(self._write, portion)) for portion in parts)

    def _write(self, groups: Sequence[Group]) -> int:
        """What one transaction does; the number of events."""
        stored = self._stored_checkpoint()  # an earlier try whose answer was lost, or another writer, was here
        due = [group for group in groups if not is_applied(group[0], stored)]
        if self._work.replaces:
            self._write_in_sequence(due)
        else:
            self._write_net(due)
        self._store_checkpoint(max(groups[-1][0], stored))
        return sum(len(events) for _, events in due)

    def _write_in_sequence(self, due: Sequence[Group]) -> None:
        """Each run of inserts and each delete in its turn, since a row may have taken the place of another one."""
        for upsert, lines in runs(_events(due)):
            if upsert:
                self._target.replace(self._work, lines)
                continue
            for line in lines:
                if not self._delete_some(line, 1):
                    raise _lost(self._work, line, due)

    def _write_net(self, due: Sequence[Group]) -> None:
        """What is left of the events.

        A delete that finds no row may mean one that was just inserted, of which it tells a value in another form: so it is tried
        again at the end. Not so where the very same row was inserted after the delete.
        """
        deletes, inserts = netted(_events(due))
        found = self._delete(deletes)
        surplus = chain.from_iterable([line] * (found[line] - count) for line, count in deletes.items())
        self._target.insert(self._work, [*inserts, *surplus])
        again = set(inserts)
        for line, count in deletes.items():
            lacking = count - found[line]
            if lacking > 0 and (line in again or self._delete_some(line, lacking) < lacking):
                raise _lost(self._work, line, due)

    # deletes

    def _delete(self, deletes: Mapping[bytes, int]) -> Counter[bytes]:
        """Delete rows; how many are gone of each, which may be fewer than it should be, or more."""
        found: Counter[bytes] = Counter()
        if len(deletes) > FEW and self._is_scanned():
            together = delete_equal(self._target, self._work, list(deletes))
            if together is None:
                self._scanned = False
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


def _events(groups: Iterable[Group]) -> Iterator[tuple[bool, bytes]]:
    return chain.from_iterable(events for _, events in groups)


def _lost(work: TableWork, line: bytes, groups: Iterable[Group]) -> RowRefused:
    """The error for a delete without a row; the first of these groups that has this delete tells its commit ts."""
    commit_ts = next(ts for ts, events in groups if (False, line) in events)
    return RowRefused(
        f"{work.name}: the delete with commit ts {commit_ts} finds no row with exactly these values in the target; "
        "the table was changed by someone else, or its rows were not complete at the start"
    )
