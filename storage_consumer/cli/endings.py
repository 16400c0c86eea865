"""How a command ends: exit codes, its answer, or its error.

An error is one sentence on standard error and in the log, without secrets.

Help and reference are generated from the table of codes.
"""

from __future__ import annotations

import importlib
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from storage_consumer import telemetry
from storage_consumer.cli.screen import complain
from storage_consumer.cli.verbs import LOGGING, PROGRAM, VERBS
from storage_consumer.clock import some_of
from storage_consumer.config.sources import LogWish, log_wish
from storage_consumer.errors import (
    ConfigError,
    NoMetadata,
    NotTheWriter,
    StorageConsumerError,
    TableError,
)
from storage_consumer.session import Session
from storage_consumer.summary import RoundSummary
from storage_consumer.telemetry import json_text


class ExitCode(IntEnum):
    """What the program's end reports to whoever started it."""

    DONE = 0
    FAILED = 1
    """Something did not answer for too long, or something unexpected happened."""
    MISCONFIGURED = 2
    """Nothing was touched."""
    NOT_THE_WRITER = 3
    TABLES_STOPPED = 4
    """Tables halted or, with --once, were paused or short of the bucket's checkpoint; not all."""
    NO_METADATA = 5
    """With --once: the bucket has no ``metadata``. Nothing was touched."""
    BEHIND = 5
    """Of `status`: rounds fail and are retried, or the checkpoint is older than --max-lag."""
    INTERRUPTED = 130
    """SIGINT ended a command other than `run`; shells report the same number."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One way in which a command ends."""

    meaning: str
    """Text for help."""
    remedy: str
    """What to do; empty if there is nothing to do."""


_ARGUMENTS = "Correct the arguments as the message says."
_NO_ANSWER = "The message says what did not answer. Run the command again once it does."
_DECIDED = "A running consumer obeys in its next round, a stopped one when it starts."
_NO_TARGET = Ending("the target did not answer", _NO_ANSWER)
_NO_BUCKET = Ending("the storage did not answer", _NO_ANSWER)
_NO_END = Ending("the bucket or the target did not answer", _NO_ANSWER)
_SHOWN = Ending("shown, or decided (now or before)", _DECIDED)
_UNWRITTEN = Ending("the output could not be written", "")
DONE, FAILED, MISCONFIGURED = ExitCode.DONE, ExitCode.FAILED, ExitCode.MISCONFIGURED

_ENDINGS: Mapping[str, Mapping[ExitCode, Ending]] = {
    "run": {
        DONE: Ending("done", ""),
        FAILED: Ending(
            "failed while running",
            "The event `failed` names the error. Fix the cause and start the program again: it continues "
            "where it stopped.",
        ),
        MISCONFIGURED: Ending(
            "wrong settings; nothing was touched",
            "The message names the setting. Correct it and start again.",
        ),
        ExitCode.NOT_THE_WRITER: Ending(
            "another process is, or became, the writer of this target",
            "Leave the work to the other process, stop it first, or wait for its end with `--standby`.",
        ),
        ExitCode.TABLES_STOPPED: Ending(
            "one or more tables stopped (the message says why), or have rows in the quarantine; the others went on",
            "The error of each table says what to do; `storage-consumer table` lists them. Then start again.",
        ),
        ExitCode.NO_METADATA: Ending(
            "with --once: the bucket has no metadata (not the changefeed's folder, or too early); nothing was touched",
            "`storage-consumer inspect` names a folder nearby that has one. If the changefeed has only begun, start again later.",
        ),
    },
    "inspect": {
        DONE: Ending("nothing is missing", "Continue with the `run` command that it prints."),
        FAILED: _NO_BUCKET,
        MISCONFIGURED: Ending(
            "a setting is missing or contradicts the bucket, or the arguments are wrong",
            "Give the settings that are listed as missing, and correct those that contradict the bucket.",
        ),
    },
    "status": {
        DONE: Ending("healthy", ""),
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "no state in this target, no such table, or the arguments are wrong", _ARGUMENTS
        ),
        ExitCode.NOT_THE_WRITER: Ending(
            "nobody writes (not with --batch)",
            "Start `storage-consumer run`; its log says why it ended.",
        ),
        ExitCode.TABLES_STOPPED: Ending(
            "one or more tables are halted or paused, have rows in the quarantine, or differ by `verify`",
            "Run the command that stands below each of them.",
        ),
        ExitCode.BEHIND: Ending(
            "rounds fail and are tried again, clocks differ, or the checkpoint is older than --max-lag",
            "Bring back what does not answer, which the status names. If the bucket's checkpoint is as old, look at the changefeed; else [Capacity](../operations/running.md#capacity).",
        ),
    },
    "plan": {
        DONE: Ending("nothing stands in the way", "Start `storage-consumer run`."),
        FAILED: _NO_END,
        MISCONFIGURED: Ending(
            "wrong settings, another bucket's state, or a bucket without metadata",
            "Correct what the message names; `storage-consumer inspect` shows what the bucket needs.",
        ),
        ExitCode.TABLES_STOPPED: Ending(
            "one or more tables would halt",
            "Each error says what to do; the other tables would go on.",
        ),
    },
    "changes": {
        DONE: Ending("all changes of the window were printed, or nobody reads them any more", ""),
        FAILED: Ending(
            "the storage did not answer, has no metadata, or a file cannot be read, and what came before was printed; or "
            "undo-sql cannot take the window back, and nothing was printed",
            "The message names file, row, statement and table with the next step; with --table the files of other tables do not matter.",
        ),
        MISCONFIGURED: Ending(
            "the arguments are wrong, a setting is missing, or the window ends beyond the bucket's checkpoint",
            _ARGUMENTS,
        ),
    },
    "serve": {
        DONE: Ending("ended by a signal", ""),
        FAILED: Ending("the database of --meta-uri did not answer at the start", _NO_ANSWER),
        MISCONFIGURED: Ending(
            "the arguments are wrong, or the address cannot be listened on; a wrong file of a destination does not end it",
            _ARGUMENTS,
        ),
    },
    "doctor": {
        DONE: Ending("no check failed; there may be warnings", "Start `storage-consumer run`."),
        FAILED: _UNWRITTEN,
        MISCONFIGURED: Ending("the arguments are wrong", _ARGUMENTS),
        ExitCode.TABLES_STOPPED: Ending(
            "one or more checks failed: a run would end, or halt a table",
            "Each line that begins with FAIL has its remedy below. Then run the command again.",
        ),
    },
    "verify": {
        DONE: Ending("all tables that were compared are equal, and all were compared", ""),
        FAILED: Ending(
            "a table could not be compared, and none of the others differs; or a server did not answer",
            "The answer names each table with the reason and the next step. Then run it again, with `--resume` if it was broken off.",
        ),
        MISCONFIGURED: Ending("the arguments are wrong, or a right is missing", _ARGUMENTS),
        ExitCode.TABLES_STOPPED: Ending(
            "one or more tables differ from the source",
            "Each table that differs has the command that makes it equal.",
        ),
    },
    "ddl": {
        DONE: _SHOWN,
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "no such statement, or it is already resolved (the message lists what waits); or the arguments are wrong",
            "Name one of the statements that wait.",
        ),
    },
    "table": {
        DONE: _SHOWN,
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "no such table, or its state does not allow the decision (the message says why); or the "
            "arguments are wrong",
            "Do what the message says first.",
        ),
        ExitCode.TABLES_STOPPED: Ending(
            "of several tables one or more do not allow the decision; it is stored for the others",
            "Each line with `refused` says why, and what to do first.",
        ),
    },
    "load": {
        DONE: Ending(
            "shown, or stored (a consumer may still refuse the copy: `storage-consumer load` shows that)",
            _DECIDED,
        ),
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "the table is being loaded already, there is nothing to cancel, or the arguments are wrong",
            _ARGUMENTS,
        ),
    },
    "quarantine": {
        DONE: Ending("shown, or decided", "A running consumer tries rows again in its next round."),
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "no such row (the list shows those there are), or the arguments are wrong", _ARGUMENTS
        ),
    },
    "history": {
        DONE: Ending("shown", ""),
        FAILED: _NO_TARGET,
        MISCONFIGURED: Ending(
            "no such table (the message names the nearest), or the arguments are wrong", _ARGUMENTS
        ),
    },
    "rebind": {
        DONE: Ending("bound, now or before", "Start the consumer on the new place."),
        FAILED: _NO_END,
        MISCONFIGURED: Ending(
            "the files differ (the message lists them), or the arguments are wrong",
            "Copy what is missing or differs, or add `--allow-missing` or `--allow-rewritten` if that is intended.",
        ),
        ExitCode.NOT_THE_WRITER: Ending("a consumer is running", "Stop it first."),
    },
    "tso": {
        DONE: Ending("shown", ""),
        FAILED: _UNWRITTEN,
        MISCONFIGURED: Ending("neither a TSO nor a time with its zone", _ARGUMENTS),
    },
    "init": {
        DONE: Ending(
            "written, and nothing is missing", "Continue with the command that it prints."
        ),
        FAILED: _NO_BUCKET,
        MISCONFIGURED: Ending(
            "written, but a setting or the target's URI is missing, or a setting contradicts the bucket; or the "
            "file exists, or the arguments are wrong",
            "Fill in what the file marks as missing; `--force` overwrites a file.",
        ),
    },
    "completion": {
        DONE: Ending("printed", ""),
        FAILED: Ending("the script could not be written", "Look at where the output goes."),
        MISCONFIGURED: Ending("there is no such shell, or the arguments are wrong", _ARGUMENTS),
    },
}
ENDINGS = MappingProxyType({verb: MappingProxyType(endings) for verb, endings in _ENDINGS.items()})
"""Command → code → ending; every command but `run` also ends as `INTERRUPTED` on SIGINT."""

_BY_ERROR: Mapping[type[Exception], ExitCode] = MappingProxyType(
    {
        ConfigError: ExitCode.MISCONFIGURED,
        NoMetadata: ExitCode.NO_METADATA,
        NotTheWriter: ExitCode.NOT_THE_WRITER,
        TableError: ExitCode.TABLES_STOPPED,
    }
)


def code_of(kind: type[Exception]) -> ExitCode:
    """Return `run`'s exit code after an error of this class, `FAILED` for one without its own."""
    return next(
        (code for base, code in _BY_ERROR.items() if issubclass(kind, base)), ExitCode.FAILED
    )


def listed(command: str) -> str:
    """Return a command's codes with their meanings, one a line, as help shows them."""
    return "\n".join(f"  {code:d}  {ending.meaning}" for code, ending in ENDINGS[command].items())


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command that ended without an error."""

    text: str
    code: ExitCode = ExitCode.DONE


OBEYED = "a running consumer obeys in its next round, a stopped one when it starts"
"""What becomes of a decision."""


def told(
    own: Any, document: object, lines: Iterable[str], code: ExitCode = ExitCode.DONE
) -> Answer:
    """Return an answer as the command's record `own` asks: the document as JSON, or lines."""
    return Answer(json_text(document) if own.json else "\n".join([*lines, ""]), code)


Command = Callable[[Any, Session], Answer]
"""Answers a command: takes its own options and a session; raises `StorageConsumerError`."""


_OF_LOG = ("log_level", "log_file", "log_format")
"""Options that the program heeds, and that are nothing to a command."""


def answered(
    verb: str, options: Mapping[str, object], environ: Mapping[str, str], **session: Any
) -> Answer:
    """Return the command's answer to keyword options, or raise; `session`: for the `Session`."""
    own, rest = VERBS[verb].divided(
        {name: value for name, value in options.items() if name not in _OF_LOG}
    )
    # Only the one that is asked for: help and `run` need not wait for what the others import.
    module = importlib.import_module(f"storage_consumer.cli.{VERBS[verb].module}")
    command: Command = getattr(module, f"answer_{verb}")
    return command(own, Session(rest, environ, **session))


_log = telemetry.Log("cli")
_NAMED = 10
"""Number of tables that stopped which a sentence names."""


def log_of(verb: str, options: Mapping[str, object]) -> LogWish:
    """Return where a command's log goes; `options`: its flags as far as known, right or wrong.

    `run` and `serve` have a log in any case. Of the other commands only an error goes there, and
    only into a file.
    """
    found = log_wish(options, os.environ)
    return found if verb in LOGGING or found.file else LogWish(level=found.level)


def print_error(text: str) -> None:
    """Write an error to standard error, with the program's name before it."""
    complain(f"{PROGRAM}: {telemetry.lines_escaped(telemetry.redact(text))}", os.environ)


def report_early(error: Exception, wish: LogWish, code: ExitCode) -> ExitCode:
    """Report an error from before the log, opening that if possible; return the code."""
    try:
        telemetry.configure(level=wish.level, file=wish.file, style=wish.style)
    except ConfigError:  # the log file itself may be the mistake
        wish = LogWish(level=wish.level)
    return report_error(error, wish, code)


def report_error(error: Exception, wish: LogWish, code: ExitCode) -> ExitCode:
    """Report an error as a sentence on standard error and a log event; return the code."""
    text = _sentence(error)
    # JSON on standard error must stay parseable, so the sentence is left out there.
    if wish.file or wish.style != "json":
        print_error(text)
    is_logged = wish.file or wish.style == "json"
    # At level debug for listeners alone: on the terminal the sentence says it.
    (_log.error if is_logged else _log.debug)(
        "failed", kind=type(error).__name__, error=text, exit_code=int(code)
    )
    return code


def report_of_verb(error: Exception, wish: LogWish) -> ExitCode:
    """Report the error of a command other than `run`; return its code."""
    code = code_of(type(error))
    # Special codes are for `run`: a table or missing metadata is a failure elsewhere.
    if code not in (ExitCode.MISCONFIGURED, ExitCode.NOT_THE_WRITER):
        code = ExitCode.FAILED
    report_early(error, wish, code)
    if not isinstance(error, StorageConsumerError) and wish.level == "debug" and not wish.file:
        print_error("".join(traceback.format_exception(error)).rstrip())
    return code


def report_at_end(error: Exception, wish: LogWish) -> ExitCode:
    """Report the error that ends `run`; return its code."""
    code, text = code_of(type(error)), _sentence(error)
    _log.error("failed", kind=type(error).__name__, error=text, exit_code=int(code))
    # A log on standard error has said it.
    if wish.file:
        print_error(text)
    return code


def report_tables(summary: RoundSummary, wish: LogWish) -> None:
    """Name stopped tables on standard error if the log with their errors is in a file."""
    stopped = (*summary.halted, *summary.paused, *summary.waiting)
    if not wish.file:
        return
    if loads := (*summary.loading, *summary.refused_loads):
        print_error(
            f"loads that have not ended: {some_of(loads, _NAMED)}; `storage-consumer load` shows how far they are, or why they were refused"
        )
    if stopped:
        first = f"; {stopped[0].error}" if stopped[0].error else ""
        named = [f"{each.table} ({each.state})" for each in stopped]
        print_error(f"tables stopped: {some_of(named, _NAMED)}{first}")


def watch_threads() -> None:
    """Log what ends a thread from now on: Python would print it with all that it quotes."""

    def ended(found: threading.ExceptHookArgs) -> None:
        if isinstance(found.exc_value, Exception):
            name = found.thread.name if found.thread else ""
            _log.warning("thread_failed", thread=name, error=_sentence(found.exc_value))

    threading.excepthook = ended


def _sentence(error: Exception) -> str:
    if isinstance(error, StorageConsumerError):
        return str(error)
    # Our errors are sentences; a library's, such as Spark's, may fill pages.
    first = (
        str(error).strip().partition("\n")[0] or traceback.format_exception_only(error)[-1].strip()
    )
    return f"unexpected {type(error).__name__}: {first}"
