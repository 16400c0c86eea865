"""``--on-halt``: the command called when a table halts or goes on, at take-over and failure.

It hears events of the log and the summaries of rounds. A thread of its own runs the command, once
for each document: no round waits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from signal import SIGKILL
from time import monotonic, sleep

from storage_consumer.clock import Clock
from storage_consumer.errors import ConfigError
from storage_consumer.summary import RoundSummary, TableSummary
from storage_consumer.telemetry import Log, json_text, listen, redact, tso_time, utc_time
from storage_consumer.watch.status import given_commands

TIME_LIMIT = 30.0
"""Seconds that the command may take; then it is killed, with all that it started in its session."""
LAST_WAIT = 5.0
"""Seconds for which the end of the program waits for the command."""
MOST_WAITING = 100
"""Documents that wait for the command at most; later ones are dropped."""
MOST_TABLES = 50
"""Tables that a document lists; the others are counted."""
_LONGEST_ERROR = 1000
"""Characters of an error in a document."""
_EXCERPT = 200
"""Characters of what the command wrote to standard error that the log shows."""
_PIPE = 64 * 1024
_TAKES_AWAY = ("pause", "skip")
"""Decisions after which a table neither counts as halted nor goes on: whoever decided so need not
be told.
"""
_NAMED = re.compile(r"(?<=`)storage-consumer [a-z][^`]*(?=`)")
"""A command that an error only names, without all that it takes to be pasted."""
_SENTENCE = re.compile(r"(?<=[.;]) +(?=\S)")
_log = Log("alerts")


def check_command(command: Sequence[str]) -> None:
    """Raise `ConfigError` if the program of a command is not there."""
    if command and shutil.which(command[0]) is None:
        raise ConfigError(
            f"--on-halt: {command[0]} is not there, or may not be executed. The command is started without a shell: for pipes "
            "and variables give a script, or sh -c '…'"
        )


@dataclass(slots=True)
class _Alert:
    """What the command is still to be told: of tables, or with a text of the program itself."""

    event: str
    tables: list[TableSummary]
    text: str
    fields: Mapping[str, object]


class OnHalt:
    """Reports each halt once, at once; those during a call of the command go together."""

    def __init__(self, command: Sequence[str], about: Mapping[str, object], clock: Clock) -> None:
        """Tell nothing yet; never without a command. `about`: fields of every document."""
        self._command = command
        self._about = about
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Alert] = deque()
        self._is_running = False
        self._ends = False
        self._halted = set[str]()
        """Tables that are halted, as far as is known."""
        self._decided = set[str]()
        """Tables about which an operator has decided since the last round; it shows whether they go
        on.
        """
        self._quarantined = set[str]()
        """Tables whose first quarantined row was told."""
        self._is_first_round = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive events inside the block, then wait briefly for the command, if there is one."""
        if not self._command:
            yield
            return
        thread = threading.Thread(target=self._run, name="on-halt", daemon=True)
        thread.start()
        remove = listen(self.heard)
        try:
            yield
        finally:
            remove()
            with self._changed:
                self._ends = True
                self._changed.notify()
            thread.join(LAST_WAIT)
            with self._changed:
                left = [alert.event for alert in self._waiting]
            if left:
                self._log_failure(left[0], f"the program ends; {len(left)} were not delivered")

    def round_finished(self, summary: RoundSummary) -> None:
        """Tell which tables are halted though no event said so, and which go on."""
        halted = {table.table: table for table in summary.halted}
        with self._changed:
            new = [table for name, table in halted.items() if name not in self._halted]
            # No event of this run was about them: they halted in an earlier one, and were not tried
            # again.
            still = [
                table for table in new if self._is_first_round and table.table not in self._decided
            ]
            self._tell("still_halted", still)
            self._tell("table_halted", [table for table in new if table not in still])
            at = {table.table: table for table in summary.tables}
            resumed = sorted((self._halted | self._decided) - halted.keys())
            self._tell(
                "table_resumed", [at.get(name, TableSummary(table=name)) for name in resumed]
            )
            self._halted, self._is_first_round = set(halted), False
            self._decided.clear()
            # One whose last row has left the quarantine is told again.
            self._quarantined &= summary.quarantined.keys()

    def heard(self, name: str, _level: int, fields: Mapping[str, object]) -> None:
        """Take an event of the log."""
        table = str(fields.get("table", ""))
        with self._changed:
            # After a fault a round is tried again, and its tables may halt once more.
            if name == "table_halted" and table not in self._halted:
                self._halted.add(table)
                checkpoint = fields["checkpoint"] if isinstance(fields["checkpoint"], int) else 0
                self._tell(
                    name,
                    [TableSummary(table=table, error=str(fields["error"]), checkpoint=checkpoint)],
                )
            elif name == "decision_obeyed" or (name == "table_resumed" and table in self._halted):
                # Not told yet: it may halt again in the same round, which would be another halt.
                self._halted.discard(table)
                if fields.get("verb") not in _TAKES_AWAY:
                    self._decided.add(table)
            elif name == "row_quarantined" and table not in self._quarantined:
                self._quarantined.add(table)
                error = f"the target refused the row with {fields['key']}: {fields['error']}. See `storage-consumer quarantine`"
                self._tell(name, [TableSummary(table=table, error=error)])
            elif name == "lease_acquired" and fields.get("former"):
                told = {key: fields[key] for key in ("holder", "former", "epoch")}
                self._tell("took_over", (), f"took over from {fields['former']}", told)
            elif name == "failed":
                told = _error_fields(str(fields["error"])) | {
                    key: fields[key] for key in ("kind", "exit_code")
                }
                self._tell(
                    name,
                    (),
                    f"failed with exit code {fields['exit_code']}: {fields['error']}",
                    told,
                )

    def _tell(
        self,
        event: str,
        tables: Sequence[TableSummary],
        text: str = "",
        fields: Mapping[str, object] | None = None,
    ) -> None:
        if not (self._command and (tables or text)):
            return
        # The first one is being told while the command runs.
        last = self._waiting[-1] if len(self._waiting) > self._is_running else None
        if len(self._waiting) >= MOST_WAITING:
            self._log_failure(event, f"{MOST_WAITING} others wait already")
        elif last is not None and last.event == event and tables:
            last.tables += tables
        else:
            self._waiting.append(_Alert(event, list(tables), text, fields or {}))
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_running = False
                self._changed.wait_for(lambda: self._waiting or self._ends)
                if not self._waiting:
                    return
                self._is_running = True
                alert = self._waiting[0]
            try:
                with self._changed:
                    document = self._document(alert)
                error = _called(self._command, json_text(document).encode())
            except OSError as fault:
                error = f"it cannot be started: {fault.strerror or fault}"
            except Exception as fault:  # noqa: BLE001 - whatever it is, the next document has to be told
                error = f"{type(fault).__name__}: {fault}"
            if error:
                self._log_failure(alert.event, error)
            with self._changed:
                self._waiting.popleft()

    def _document(self, alert: _Alert) -> dict[str, object]:
        head = {"event": alert.event, "time": utc_time(self._clock.now()), **self._about}
        who = "storage-consumer on {host}, {upstream} to {downstream}".format_map(self._about)
        if not alert.tables:
            return {**head, "text": f"{who}: {alert.text}", **alert.fields}
        listed = list[dict[str, object]]()
        for table in alert.tables[:MOST_TABLES]:
            described: dict[str, object] = {"table": table.table}
            if table.error:
                described |= _error_fields(table.error) | {"error": cut(table.error)}
            if table.checkpoint:
                described |= {
                    "checkpoint": table.checkpoint,
                    "checkpoint_time": tso_time(table.checkpoint),
                }
            listed.append(described)
        text = f"{who}: {_sentence(alert.event, alert.tables, len(self._halted))}"
        return {
            **head,
            "text": text,
            **listed[0],
            "count": len(alert.tables),
            "halted": len(self._halted),
            "tables": listed,
        }

    def _log_failure(self, event: str, error: str) -> None:
        _log.error("alert_failed", hook=self._command[0], alert=event, error=error)


def next_step(error: str) -> tuple[str, tuple[str, ...]]:
    """Return an error's next step, from the first sentence with a command, and its commands.

    These are the ones to be pasted; where there are none, those that it names.
    """
    whole, named = given_commands(error), tuple(_NAMED.findall(error))
    if not whole and not named:
        return "", ()
    first = min(error.find(command) for command in (*whole, *named))
    begins = [match.end() for match in _SENTENCE.finditer(error) if match.end() <= first]
    return error[begins[-1] if begins else 0 :], whole or named


def cut(error: str) -> str:
    """Cut an error to a message's length, secrets blanked first: half of one would show."""
    error = redact(error)
    return error if len(error) <= _LONGEST_ERROR else f"{error[: _LONGEST_ERROR - 1]}…"


def _error_fields(error: str) -> dict[str, object]:
    step, commands = next_step(error)
    return {"error": error, "next_step": step, "commands": list(commands)}


def _sentence(event: str, tables: Sequence[TableSummary], halted: int) -> str:
    first, several = tables[0], len(tables) > 1
    if event == "table_resumed":
        named = (
            f"{len(tables):,} tables, {first.table} among them, go on"
            if several
            else f"{first.table} goes on"
        )
        return f"{named}; {f'{halted:,} still halted' if halted else 'no table is halted any more'}"
    if event == "row_quarantined":
        return f"{first.table} is not equal to the source any more: {cut(first.error)}"
    verb = "still halted" if event == "still_halted" else "halted"
    named = (
        f"{len(tables):,} tables {verb}, the first is {first.table}"
        if several
        else f"{first.table} {verb}"
    )
    return f"{named}: {cut(first.error)}"


def _called(command: Sequence[str], content: bytes) -> str:
    """Run the command with `content` as standard input; return why it failed, or ""."""
    # A file, not a pipe: a command need not read what it gets.
    with tempfile.TemporaryFile() as document:
        document.write(content)
        document.seek(0)
        process = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
            command,
            stdin=document,
            stdout=subprocess.DEVNULL,
            # Not a file: a command that never stops writing would fill the disk on which Spark
            # works.
            stderr=subprocess.PIPE,
            # A signal to the program, such as Ctrl-C at its terminal, does not end the message
            # about it.
            start_new_session=True,
        )
    assert process.stderr is not None
    errors, said, deadline = process.stderr.fileno(), b"", monotonic() + TIME_LIMIT
    os.set_blocking(errors, False)
    with process.stderr:
        # The end of the command counts, not that of the pipe: what it leaves running may hold that
        # open.
        has_ended = False
        while not has_ended and monotonic() < deadline:
            sleep(0.05)
            has_ended = process.poll() is not None
            with suppress(BlockingIOError):
                said = (said + os.read(errors, _PIPE))[:_PIPE]
    if not has_ended:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        process.wait()
        return f"it was killed after {TIME_LIMIT:g} s"
    text = " ".join(redact(said.decode("utf-8", "replace")).split())[:_EXCERPT]
    return (
        f"it ended with {process.returncode}{f': {text}' if text else ''}"
        if process.returncode
        else ""
    )
