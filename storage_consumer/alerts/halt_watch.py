"""Which documents are due: from the events of the log, and from what each round says of halted tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from storage_consumer.alerts.document import (
    About,
    Document,
    EventName,
    TableNote,
    about_program,
    about_tables,
    next_step,
)
from storage_consumer.clock import Clock
from storage_consumer.summary import Progress, RoundSummary

_QUIET = 5.0
"""Seconds without another halt after which those of a long round are told."""
_TAKES_AWAY = ("pause", "skip")
"""Decisions after which a table neither counts as halted nor goes on: whoever decided so need not be told."""
_LONGEST = 60.0
"""Seconds after which they are told even though others follow."""


class HaltWatch:
    """A `Progress` and a listener of events that sends documents, and passes all calls of `Progress` on to another.

    Each halt is told once. Those of one round are told together: at its end, or in a long round once no more follow.
    """

    def __init__(self, inner: Progress, send: Callable[[Document], None], about: About, clock: Clock) -> None:
        """Pass calls on to `inner`; `send` must not wait."""
        self._inner = inner
        self._send = send
        self._about = about
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, TableNote] = {}
        """Tables that are halted, as far as is known."""
        self._pending: dict[str, TableNote] = {}
        """Those of them that were not told."""
        self._decided = set[str]()
        """Tables about which an operator has decided since the last round; it shows whether they go on."""
        self._quarantined = set[str]()
        """Tables whose first quarantined row was told."""
        self._first_at = self._last_at = 0.0
        """When the first and the last one of the pending halted."""
        self._is_first_round = True

    # as a Progress

    def round_started(self, *, files: int, size: int, storage_checkpoint: int, statements: int = 0) -> None:
        """Pass the call on."""
        self._inner.round_started(files=files, size=size, storage_checkpoint=storage_checkpoint, statements=statements)

    def advanced(self, *, files: int = 0, rows: int = 0, statements: int = 0) -> None:
        """Pass the call on."""
        self._inner.advanced(files=files, rows=rows, statements=statements)

    def ddl(self, *, table: str, query: str) -> None:
        """Pass the call on."""
        self._inner.ddl(table=table, query=query)

    def round_finished(self, summary: RoundSummary) -> None:
        """Tell which tables halted, and which go on; pass the call on."""
        halted = {t.table: TableNote(table=t.table, error=t.error, checkpoint=t.checkpoint) for t in summary.halted}
        with self._lock:
            new = {table: note for table, note in halted.items() if table not in self._known}
            # No event of this run was about them: they halted in an earlier one, and were not tried again.
            old = new.keys() - self._decided if self._is_first_round else frozenset()
            still = [note for table, note in new.items() if table in old]
            halts = self._pending | {table: note for table, note in new.items() if table not in old}
            resumed = sorted((self._known.keys() | self._decided) - halted.keys())
            self._known, self._pending, self._is_first_round = halted, {}, False
            self._decided.clear()
            # One whose last row has left the quarantine is told again.
            self._quarantined &= summary.quarantined.keys()
        self._tell("still_halted", still)
        self._tell("table_halted", list(halts.values()))
        at = {t.table: t.checkpoint for t in summary.tables}
        self._tell("table_resumed", [TableNote(table=table, checkpoint=at.get(table, 0)) for table in resumed])
        self._inner.round_finished(summary)

    # as a listener

    def heard(self, name: str, _level: int, fields: Mapping[str, object]) -> None:
        """Take an event of the log."""
        table = str(fields.get("table", ""))
        if name == "table_halted":
            self._halted(TableNote(table=table, error=str(fields["error"]), checkpoint=_number(fields["checkpoint"])))
        elif name == "decision_obeyed" and fields.get("verb") in _TAKES_AWAY:
            with self._lock:
                self._known.pop(table, None)
        elif name in ("decision_obeyed", "table_resumed"):
            with self._lock:
                # Not told yet: it may halt again in the same round, which would be another halt. A table that only waited goes on as well.
                if self._known.pop(table, None) or name == "decision_obeyed":
                    self._decided.add(table)
        elif name == "lease_acquired" and fields.get("former"):
            told = {key: fields[key] for key in ("holder", "former", "epoch")}
            text = f"took over from {fields['former']}"
            self._send(about_program("took_over", text, self._about, self._clock.now(), told))
        elif name == "row_quarantined":
            self._unequal(table, fields)
        elif name == "failed":
            self._failed(fields)

    def tick(self) -> None:
        """Tell the halts of a long round once that is due; called about once a second."""
        now = self._clock.monotonic()
        with self._lock:
            is_due = self._pending and (now - self._last_at >= _QUIET or now - self._first_at >= _LONGEST)
        if is_due:
            self.flush()

    def flush(self) -> None:
        """Tell now what was not told yet."""
        with self._lock:
            halts, self._pending = self._pending, {}
        self._tell("table_halted", list(halts.values()))

    def _halted(self, note: TableNote) -> None:
        with self._lock:
            # After a fault a round is tried again, and its tables may halt once more.
            if note.table in self._known:
                return
            self._last_at = self._clock.monotonic()
            if not self._pending:
                self._first_at = self._last_at
            self._known[note.table] = self._pending[note.table] = note

    def _unequal(self, table: str, fields: Mapping[str, object]) -> None:
        """Tell of a table's first row in the quarantine."""
        with self._lock:
            if table in self._quarantined:
                return
            self._quarantined.add(table)
        text = f"the target refused the row with {fields['key']}: {fields['error']}. See `storage-consumer quarantine`"
        self._tell("row_quarantined", [TableNote(table=table, error=text)])

    def _failed(self, fields: Mapping[str, object]) -> None:
        self.flush()
        error = str(fields["error"])
        step, commands = next_step(error)
        told = {"error": error, "kind": fields["kind"], "exit_code": fields["exit_code"], "next_step": step}
        text = f"failed with exit code {fields['exit_code']}: {error}"
        document = about_program("failed", text, self._about, self._clock.now(), {**told, "commands": list(commands)})
        self._send(document)

    def _tell(self, event: EventName, tables: Sequence[TableNote]) -> None:
        if tables:
            self._send(about_tables(event, tables, len(self._known), self._about, self._clock.now()))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
