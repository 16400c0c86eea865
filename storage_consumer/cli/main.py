"""The program: command line in, exit code out."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from storage_consumer import __version__, telemetry
from storage_consumer.alerts.calling import check_commands
from storage_consumer.alerts.halt_watch import HaltWatch
from storage_consumer.alerts.hooks import about_this, tested, watched
from storage_consumer.cli import arguments, progress
from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode, code_of
from storage_consumer.cli.sd_notify import Notifier, Observable
from storage_consumer.cli.ticker import Ticker
from storage_consumer.cli.verbs import PROGRAM, RUN, VERBS
from storage_consumer.clock import Clock, SystemClock
from storage_consumer.config.hooks import is_address
from storage_consumer.config.load import Loaded, load, with_files_read
from storage_consumer.config.sources import LogWish, log_wish
from storage_consumer.config.uris import mask_uri, secrets_in
from storage_consumer.errors import (
    Abandoned,
    ConfigError,
    NotTheWriter,
    StorageConsumerError,
    TableError,
    TransientError,
)
from storage_consumer.signals import Stop
from storage_consumer.summary import Progress, RoundSummary, RunningStatement

_log = telemetry.Log("cli")


PATIENCE = 4.0
"""Seconds that a running job may take to end after the first signal."""


_LOOK_UP = 0.5
"""Seconds for which the main thread waits at a time."""


class Runnable(Observable, Protocol):
    """What the program needs of a consumer."""

    def run_once(self, stop: Stop) -> RoundSummary:
        """Run one round and return its summary."""
        ...

    def run(self, stop: Stop) -> RoundSummary:
        """Run rounds until `stop` is requested; return the summary of the last one."""
        ...

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """Return the statements that run on the target now; called from another thread."""
        ...

    def abandon(self) -> None:
        """End without finishing the running transactions."""


ConsumerFactory = Callable[..., AbstractContextManager[Runnable]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (None: those of the process); return its `ExitCode`."""
    given = list(sys.argv[1:] if argv is None else argv)
    for secret in (found for word in given for found in secrets_in(word)):
        # Register before anything is logged: a message about a wrong argument may quote it.
        telemetry.register_secret(secret)
    # Where the log goes has to be known even for a line that does not parse: the error is written there.
    options: Mapping[str, object] = arguments.said(given, "log_level", "log_file", "log_format")
    try:
        verb, parsed = arguments.parse(given)
        # Commands that show something print it; only `run` writes a log.
        if verb != RUN:
            return _answered(verb, parsed)
        options = with_files_read(parsed, os.environ)
        loaded = load(options, os.environ)
        for secret in loaded.hidden:
            telemetry.register_secret(secret)
        program = loaded.program
        _refuse_endless_limits(loaded)
        check_commands(program.on_halt)
        telemetry.configure(level=program.log_level, file=program.log_file, style=program.log_format)
    except ConfigError as error:
        # A log of JSON must get JSON, also for wrong arguments; the other commands have no log.
        wish = log_wish(options, os.environ) if arguments.asks_to_run(given) else LogWish()
        with suppress(ConfigError):  # the log file itself may be the mistake
            telemetry.configure(level=wish.level, file=wish.file, style=wish.style)
        return _misconfigured(error, wish)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    # Help and the version have been printed.
    except SystemExit as end:
        return int(end.code or 0)
    code = run(loaded, options, _consumer)
    # Whoever reads this starts again after the remedy: the line can be pasted.
    if code == ExitCode.TABLES_STOPPED:
        _log.warning("go_on", command=command_line(given))
    return code


def _refuse_endless_limits(loaded: Loaded) -> None:
    """Raise `ConfigError` for a limit of one round where rounds go on for ever."""
    limits = loaded.config.limits
    name = "max-files" if limits.max_files else "max-seconds"
    if (limits.max_files or limits.max_seconds) and not loaded.program.once:
        raise ConfigError(
            f"--{name} ends a round, and without --once the next one follows: add --once, or leave it out"
        )


def command_line(given: Sequence[str]) -> str:
    """Return the program with these arguments, quoted for a shell; secrets are hidden."""
    hidden = [mask_uri(word) if "://" in word else word for word in given]
    for index, word in enumerate(given):
        name, equals, _ = word.partition("=")
        if name == "--downstream-password" and equals:
            hidden[index] = f"{name}=***"
        elif name == "--downstream-password" and index + 1 < len(given):
            hidden[index + 1] = "***"
        elif name.lstrip("-") == "on-halt" and equals:
            hidden[index] = f"{name}={_shown_hook(word.partition('=')[2])}"
        elif name.lstrip("-") == "on-halt" and index + 1 < len(given):
            hidden[index + 1] = _shown_hook(given[index + 1])
    return shlex.join([PROGRAM, *hidden])


def _shown_hook(text: str) -> str:
    """Return a hook as it was given, if it is the name of a program; anything more may hold a secret."""
    return "***" if is_address(text) or " " in text else text


def _answered(verb: str, options: Mapping[str, object]) -> int:
    """Print what a command answers and return its exit code; raise `ConfigError` for wrong arguments."""
    # Only the one that is asked for: help and `run` need not wait for what the others import.
    command = importlib.import_module(f"storage_consumer.cli.{VERBS[verb].module}")
    try:
        answer: Answer = command.answer(options, os.environ)
    except (TransientError, TableError, NotTheWriter) as error:
        return _print_error(error, ExitCode.NOT_THE_WRITER if isinstance(error, NotTheWriter) else ExitCode.FAILED)
    # A document was redacted text by text when it was made, so that it stays one.
    return _shown(answer.text if "json" in options else telemetry.redact(answer.text), answer.code)


def _shown(text: str, code: ExitCode) -> ExitCode:
    """Print `text` and return `code`, or `FAILED` if it cannot be written. A reader that stops early, such as ``head``, is no failure."""
    with suppress(AttributeError):  # a test's stream lacks it
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # likewise
    try:
        sys.stdout.write(telemetry.lines_escaped(text))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try to flush again at exit
        return code if isinstance(error, BrokenPipeError) else _print_error(error, ExitCode.FAILED)
    return code


def _print_error(error: Exception, code: ExitCode) -> ExitCode:
    sys.stderr.write(f"{PROGRAM}: {telemetry.lines_escaped(telemetry.redact(str(error)))}\n")
    return code


def run(loaded: Loaded, options: Mapping[str, object], consumer: ConsumerFactory) -> int:
    """Run a consumer to its end under these settings; turn every error into a log line and an `ExitCode`."""
    # Before anything can fail, so that each log begins with the version and the settings.
    _announce(loaded)
    clock = SystemClock()
    if loaded.program.test_on_halt:
        return _test_hooks(loaded, clock)
    bar = progress.progress_for(wanted=loaded.program.progress)
    about = about_this(loaded.config, __version__)
    with Stop() as stop, watched(loaded.program.on_halt, about, bar, clock) as alerts:
        notifier = Notifier(alerts)
        reporter = progress.Reporter(notifier)
        with _watched(reporter, alerts, bar):
            return _ended(loaded, options, consumer, (reporter, notifier), stop)


def _ended(
    loaded: Loaded,
    options: Mapping[str, object],
    consumer: ConsumerFactory,
    watching: tuple[progress.Reporter, Notifier],
    stop: Stop,
) -> int:
    """Run a consumer to its end, and say how it ended."""
    try:
        summary = _in_a_thread(lambda: _work(consumer, options, watching, stop, once=loaded.program.once))
    except ConfigError as error:
        program = loaded.program
        return _misconfigured(error, LogWish(file=program.log_file, style=program.log_format))
    except Abandoned:
        return _abandoned(asked=stop.abandoned.is_set())
    except Exception as error:  # noqa: BLE001 - the one place where an error of any kind becomes an exit code
        # After the second signal anything may break on the way out: the wish to end is the reason then.
        return _failed(error, abandoned=stop.abandoned.is_set())
    code = exit_code(summary, once=loaded.program.once)
    reason = code.name.lower()
    if code == ExitCode.DONE and summary.ended_early.startswith("max-"):
        reason = summary.ended_early
    _log.info("stopped", exit_code=int(code), reason=reason)
    return code


@contextmanager
def _watched(reporter: progress.Reporter, alerts: HaltWatch, bar: Progress) -> Iterator[None]:
    """Let the reporter hear of events, and all of them look at the clock, inside the block."""

    def tick() -> None:
        reporter.tick()
        alerts.tick()
        if isinstance(bar, progress.Bar):
            bar.tick()

    remove = telemetry.listen(reporter.heard)
    try:
        with Ticker(tick):
            yield
    finally:
        remove()


def _test_hooks(loaded: Loaded, clock: Clock) -> int:
    """Send a test to each hook; the log says what came of it. Return the exit code."""
    hooks = loaded.program.on_halt
    if not hooks:
        return _print_error(ConfigError("--test-on-halt: there is no --on-halt to test"), ExitCode.MISCONFIGURED)
    return ExitCode.DONE if tested(hooks, about_this(loaded.config, __version__), clock) else ExitCode.FAILED


def _work(
    consumer: ConsumerFactory,
    options: Mapping[str, object],
    watching: tuple[progress.Reporter, Notifier],
    stop: Stop,
    *,
    once: bool,
) -> RoundSummary:
    reporter, notifier = watching
    # Patience ends before the consumer closes: closing is not a job that could be called off.
    with (
        consumer(**{**options, "progress": reporter}) as running,
        notifier.telling(running, stop),
        _patience(stop, running),
    ):
        reporter.statements = running.running_statements
        # Only now, since there is nothing to abandon before; called immediately if the second signal came earlier.
        stop.on_abandon(running.abandon)
        return running.run_once(stop) if once else running.run(stop)


@contextmanager
def _patience(stop: Stop, running: Runnable) -> Iterator[None]:
    """Abandon the job if it outlasts `PATIENCE` after the first signal: commits stay, the next start repeats the rest."""
    ended = threading.Event()

    def call_off() -> None:
        # Nobody may ever request it: the thread is a daemon, and ends with the process.
        stop.requested.wait()
        if not ended.wait(PATIENCE):
            running.abandon()

    threading.Thread(target=call_off, name="patience", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _in_a_thread(work: Callable[[], RoundSummary]) -> RoundSummary:
    """Do `work` in another thread and return its result.

    The main thread then only waits, so that it can take a signal at any time; and Spark installs its own SIGINT handler only if it
    is started in the main thread. The wait is cut into short ones, since a signal that arrives right before a wait begins does not
    wake it.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="consumer") as worker:
        outcome = worker.submit(work)
        while not wait([outcome], timeout=_LOOK_UP).done:
            pass
        return outcome.result()


def _announce(loaded: Loaded) -> None:
    config = loaded.config
    _log.info(
        "started",
        version=arguments.version_text(),
        upstream=config.upstream.identity,
        downstream=config.downstream.address,
        protocol=config.upstream.protocol if "protocol" in loaded.origins else "",
        time_zone=config.upstream.time_zone,
        state_schema=config.downstream.state_schema,
        once=loaded.program.once,
    )
    for notice in loaded.notices:
        _log.info("notice", text=notice)


def exit_code(summary: RoundSummary, *, once: bool) -> ExitCode:
    """Return the exit code that the last round's summary means."""
    # Without --once a table that waits is looked at again, and one that is paused is as somebody wants it: no reason for a code.
    # A table with quarantined rows is not equal to the source, which the end of any run has to say.
    stopped = summary.halted or summary.quarantined or (once and (summary.waiting or summary.paused))
    return ExitCode.TABLES_STOPPED if stopped else ExitCode.DONE


def _consumer(**options: Any) -> AbstractContextManager[Runnable]:
    from storage_consumer.api import Consumer  # noqa: PLC0415 - help and wrong settings need not wait for Spark's import

    return Consumer(**options)


def _misconfigured(error: ConfigError, wish: LogWish) -> int:
    """Report wrong settings, as a sentence on the terminal and an event in the log; return the exit code."""
    code = ExitCode.MISCONFIGURED
    # JSON on standard error must stay parseable, so the sentence is left out there.
    if wish.file or wish.style != "json":
        _print_error(error, code)
    is_logged = bool(wish.file) or wish.style == "json"
    # At level debug for listeners alone: on the terminal the sentence says it.
    (_log.error if is_logged else _log.debug)(
        "failed", kind=type(error).__name__, error=str(error), exit_code=int(code)
    )
    return code


def _abandoned(*, asked: bool) -> int:
    """Log the end of a run whose job was abandoned, by a second signal or after `PATIENCE`; return the exit code."""
    # After `PATIENCE` the program ends by itself, as asked; a second signal is a person who did not wait for that.
    code = ExitCode.FAILED if asked else ExitCode.DONE
    _log.warning("stopped", exit_code=int(code), reason="abandoned" if asked else "interrupted")
    return code


def _failed(error: Exception, *, abandoned: bool) -> int:
    if abandoned:
        return _abandoned(asked=True)
    code = code_of(type(error))
    kind = type(error).__name__
    # Our own errors are sentences for people; one of a library, such as Spark's, may go on for pages.
    text = str(error) if isinstance(error, StorageConsumerError) else f"unexpected {kind}: {_first_line(error)}"
    _log.error("failed", kind=kind, error=text, exit_code=int(code))
    return code


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else traceback.format_exception_only(error)[-1].strip()
