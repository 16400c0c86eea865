"""How the program ends with an error: the same sentence on standard error and in the log, without secrets, and the exit code."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Mapping

from storage_consumer import telemetry
from storage_consumer.cli import screen
from storage_consumer.cli.exit_codes import ExitCode, code_of
from storage_consumer.cli.verbs import PROGRAM, RUN
from storage_consumer.clock import some_of
from storage_consumer.config.sources import LogWish, log_wish
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.summary import RoundSummary

_log = telemetry.Log("cli")
_NAMED = 10
"""Number of tables that stopped which a sentence names."""


def log_of(verb: str, options: Mapping[str, object]) -> LogWish:
    """Return where the log of a command goes. `options`: what is known of its flags, be it right or wrong.

    `run` has a log in any case. Of the other commands only an error goes there, and only into a file.
    """
    found = log_wish(options, os.environ)
    return found if verb == RUN or found.file else LogWish(level=found.level)


def print_error(text: str) -> None:
    """Write an error to standard error, with the program's name before it."""
    screen.complain(f"{PROGRAM}: {telemetry.lines_escaped(telemetry.redact(text))}", os.environ)


def told_early(error: Exception, wish: LogWish, code: ExitCode) -> ExitCode:
    """Report an error that came before there was a log, and return the code; the log is opened for it, if that can be done."""
    try:
        telemetry.configure(level=wish.level, file=wish.file, style=wish.style)
    except ConfigError:  # the log file itself may be the mistake
        wish = LogWish(level=wish.level)
    return told(error, wish, code)


def told(error: Exception, wish: LogWish, code: ExitCode) -> ExitCode:
    """Report an error as a sentence on standard error and as an event of the log; return the code."""
    text = _sentence(error)
    # JSON on standard error must stay parseable, so the sentence is left out there.
    if wish.file or wish.style != "json":
        print_error(text)
    is_logged = wish.file or wish.style == "json"
    # At level debug for listeners alone: on the terminal the sentence says it.
    (_log.error if is_logged else _log.debug)("failed", kind=type(error).__name__, error=text, exit_code=int(code))
    return code


def told_of_verb(error: Exception, wish: LogWish) -> ExitCode:
    """Report the error of a command other than `run`; return its code."""
    code = code_of(type(error))
    # Codes of their own are for `run`: an error about a table, or about no metadata, is a failure elsewhere.
    if code not in (ExitCode.MISCONFIGURED, ExitCode.NOT_THE_WRITER):
        code = ExitCode.FAILED
    told_early(error, wish, code)
    if not isinstance(error, StorageConsumerError) and wish.level == "debug" and not wish.file:
        print_error("".join(traceback.format_exception(error)).rstrip())
    return code


def told_at_end(error: Exception, wish: LogWish) -> ExitCode:
    """Report the error that ends `run`; return its code."""
    code, text = code_of(type(error)), _sentence(error)
    _log.error("failed", kind=type(error).__name__, error=text, exit_code=int(code))
    # A log on standard error has said it.
    if wish.file:
        print_error(text)
    return code


def told_of_tables(summary: RoundSummary, wish: LogWish) -> None:
    """Name the tables that stopped on standard error, where the log that has their errors goes into a file."""
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
    # Our own errors are sentences for people; one of a library, such as Spark's, may go on for pages.
    first = str(error).strip().partition("\n")[0] or traceback.format_exception_only(error)[-1].strip()
    return f"unexpected {type(error).__name__}: {first}"
