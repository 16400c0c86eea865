"""The events of a table without a key: what is left after netting them, written together with the table's checkpoint.

Why each event takes effect exactly once, whenever the program is killed:

* Events come in parts that never split a commit-ts (`order.keyless.in_parts`). A transaction takes whole parts, and moves the table's
  stored checkpoint to their last commit-ts. So at any instant the table holds the events up to its stored checkpoint and no others.
* The stored checkpoint is read in a transaction that claims the task's slot. From then on nobody else moves it: another attempt
  of the task has to take over the slot first, and then the fence stops this one. Events at or below it are left out.
* Each transaction reads it again. If it has already reached the end of the transaction's events, the answer to an earlier try's commit
  was lost. Any other value that is not below their first commit-ts cannot occur; then nothing is written.
* What a transaction writes is fixed before it begins, so a retry after a conflict does the same.

A load of such a table goes the same way: its clock stands for the commit-ts, and is stored with the load (see `plan.loads`).
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
from storage_consumer.apply.statements import delete_images, gaps, json_equals, without_gaps
from storage_consumer.downstream.connection import escape
from storage_consumer.errors import RowRefused, TargetUnavailable
from storage_consumer.job.spec import TablePlan
from storage_consumer.order.keyless import Events, Net
from storage_consumer.tso import is_applied

FEW_EVENTS, FEW_BYTES = 10_000, 48 << 20
"""Events, or bytes of memory for their net effect, that are enough for one transaction."""
MANY_BYTES = 192 << 20
"""The limit of bytes where deletes go together, in passes over the table. The more events are netted, the fewer passes."""
FEW = 8
"""Most distinct rows that are deleted one by one."""


class Portion:
    """The events of one transaction."""

    def __init__(self, *, in_turn: bool) -> None:
        """Begin empty. With `in_turn`, keep the events as they are instead of netting them."""
        self.events = 0
        """Number of events."""
        self.first = self.last = 0
        """Their first and last commit-ts, inclusive; 0 while there are none."""
        self.in_turn: list[Events] = []
        self.net = Net()
        self.size = 0
        """Approximate bytes of memory."""
        self._keeps = in_turn

    def add(self, events: Events) -> None:
        """Add events, at least one."""
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
    """Yield portions for one transaction each. Each takes whole parts, until `is_enough` returns true after one."""
    portion = Portion(in_turn=in_turn)
    for part in parts:
        portion.add(part)
        if is_enough(portion):
            yield portion
            portion = Portion(in_turn=in_turn)
    if portion.events:
        yield portion


class KeylessTable:
    """The writer of one keyless table's events, over the connection of a task."""

    def __init__(self, rows: RowStatements, work: TablePlan) -> None:
        """Write by `rows`, in transactions of its connection."""
        self._rows = rows
        self._fenced = rows.fenced
        self._statements = rows.fenced.spec.statements
        self._work = work
        self._json_equals = ""
        self._most: int | None = None
        """Bytes of one transaction; None until asked."""
        self._scanned: bool | None = None
        """Whether each single delete scans the table; None until asked."""

    def write(self, parts: Iterable[Events]) -> int:
        """Write events and return how many. The table's stored checkpoint moves in the same transactions, only at ends of a commit-ts."""
        # This transaction claims the slot, so the value is final: from here on no other attempt moves it.
        stored = self._fenced.transaction(self._work, self._stored_checkpoint)
        due = chain.from_iterable(part.after(stored).pieces(FEW_EVENTS) for part in parts)
        written = 0
        # Where an insert replaces rows by nullable unique keys, the order of events decides what stays: nothing is netted then.
        for portion in portions(due, self._is_enough, in_turn=self._work.replaces):
            written += self._fenced.transaction(self._work, partial(self._write, portion))
            del portion  # frees the memory before the next portion is built
        return written

    def _is_enough(self, portion: Portion) -> bool:
        """Return whether a transaction should take no more."""
        if portion.events < FEW_EVENTS and portion.size < FEW_BYTES:
            return False
        # Ask the server only once it matters: a backlog without deletes needs no larger transactions.
        if self._most is None and portion.net.met:
            self._most = self._fenced.transaction(self._work, self._most_bytes)
        # However many deletes a transaction has, they pass over the table together: the larger it is, the cheaper each of them.
        return portion.size >= (self._most or 0) or not portion.net.met

    def _most_bytes(self) -> int:
        """Return how many bytes of memory are enough for a transaction with deletes; 0 if the usual limits do."""
        return min(MANY_BYTES, most_text(self._fenced)) if self._is_scanned() else 0

    def _write(self, portion: Portion) -> int:
        """Write a portion within the running transaction; return its number of events.

        Raise `TargetUnavailable` if the stored checkpoint was moved by someone else.
        """
        stored = self._stored_checkpoint()
        if portion.last == stored:  # an earlier try committed, and its answer was lost
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
        """Write each run of inserts and each delete in order, since an insert replaces the row that shares a nullable unique key with it."""
        events = chain.from_iterable(
            zip(part.upserts.tolist(), part.lines, part.ts.tolist(), strict=True) for part in parts
        )
        for upsert, run in groupby(events, key=itemgetter(0)):
            if upsert:
                self._rows.put_in_turn(self._work, [line for _, line, _ in run])
                continue
            for _, line, ts in run:
                if not self._delete_some(line, 1):
                    raise self._lost(ts)

    def _write_net(self, net: Net) -> None:
        """Write the net effect of the events.

        A delete that finds no row may mean a row that was just inserted, with a value spelled in another form. So it is tried again after the
        inserts, unless the very same row was inserted after the delete.
        """
        found = self._delete(net.deletes)
        # A bulk delete takes every equal row: put back those beyond the number asked for.
        # A list times a negative number is empty, which leaves out those that had fewer rows than asked for.
        surplus = chain.from_iterable([line] * (found[line] - count) for line, count in net.deletes.items())
        self._rows.insert(self._work, [*net.inserts.elements(), *surplus])
        for line, count in net.deletes.items():
            lacking = count - found[line]
            # Where the very same row was inserted after the delete, another try would take that one.
            if lacking > 0 and (net.inserts[line] or self._delete_some(line, lacking) < lacking):
                raise self._lost(net.deleted_at[line])

    def _lost(self, commit_ts: int) -> RowRefused:
        """Return the error for a delete without a row."""
        return RowRefused(
            f"{self._work.name}: the delete with commit ts {commit_ts} found no row with exactly these values in the "
            "target; somebody else changed the table, or its rows were not complete at the start. Run "
            "`storage-consumer table pause`, export the table after that, then run `storage-consumer load` with --replace"
        )

    # deletes

    def _delete(self, deletes: Mapping[bytes, int]) -> Counter[bytes]:
        """Delete rows; return how many of each are gone, which may be fewer than asked for, or more."""
        found: Counter[bytes] = Counter()
        if len(deletes) > FEW and not any(map(partial(gaps, self._work), deletes)) and self._is_scanned():
            # Two passes over the table, however many rows; up to `FEW` a scan for each is cheaper.
            together = delete_equal(self._rows, self._work, list(deletes))
            if together is None:
                # This server cannot do it: never try again, and let the usual limits end a transaction.
                self._scanned, self._most = False, 0
            found.update(together or {})
        for line, count in deletes.items():
            if found[line] < count:
                found[line] += self._delete_some(line, count - found[line])
        return found

    def _is_scanned(self) -> bool:
        """Return whether each single delete scans the table."""
        if self._scanned is None:
            self._scanned = is_scanned(self._fenced, self._work)
        return self._scanned

    def _delete_some(self, line: bytes, most: int) -> int:
        """Delete up to `most` rows equal to this one; return how many there were."""
        # Nobody knows what the source had in the columns that the row lacks.
        narrow, (known,) = without_gaps(self._work, gaps(self._work, line), [line])
        statement = delete_images(narrow, known, escape, json_equals=self._json(), most=most)
        try:
            return self._rows.sized(statement)
        except StatementTooLarge as fault:
            raise self._rows.refusal(self._work, line, fault) from None

    def _json(self) -> str:
        """Return how this server compares JSON by meaning; see `json_equals`."""
        if not self._json_equals:
            self._json_equals = json_equals(str((self._fenced.row("SELECT VERSION()") or ("",))[0]))
        return self._json_equals

    # the table's checkpoint

    def _stored_checkpoint(self) -> int:
        """Lock and return the table's stored checkpoint, 0 if there is none."""
        # Where there is no row yet, nothing is locked; the slot, which is locked before, still keeps other attempts out.
        lock = self._statements.lock_load if self._work.origin else self._statements.lock_checkpoint
        row = self._fenced.row(lock % {"of": _literal(self._work.table_key)})
        return int(row[0]) if row else 0

    def _store_checkpoint(self, checkpoint: int) -> None:
        """Move the table's stored checkpoint within the running transaction."""
        if self._work.origin:
            clock = {"of": _literal(self._work.table_key), "upto": checkpoint}
            self._fenced.query(self._statements.store_load % clock)
            return
        names = {"of": self._work.table_key, "in_schema": self._work.name.schema, "named": self._work.name.table}
        values = {parameter: _literal(name) for parameter, name in names.items()}
        self._fenced.query(self._statements.store_checkpoint % {**values, "upto": checkpoint})


def _literal(text: str) -> str:
    return f"'{escape(text)}'"
