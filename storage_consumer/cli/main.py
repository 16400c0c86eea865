"""The program: command line in, exit code out; and systemd's ``Type=notify`` protocol."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from storage_consumer import __version__, telemetry
from storage_consumer.cli import arguments, endings, screen
from storage_consumer.cli.endings import ExitCode, answered
from storage_consumer.cli.progress_bar import shown
from storage_consumer.cli.verbs import LOGGING, RUN
from storage_consumer.clock import Stop, SystemClock
from storage_consumer.config.commands import run_command
from storage_consumer.config.load import Loaded, load
from storage_consumer.config.sources import with_files_read
from storage_consumer.config.uris import secrets_in
from storage_consumer.errors import Abandoned, ConfigError
from storage_consumer.summary import RoundSummary, RunningStatement
from storage_consumer.watch.on_halt import OnHalt, check_command
from storage_consumer.watch.recorder import TICK, Recorder, Ticker

_notify_log = telemetry.Log("sd_notify")


class Notifier:
    """Tells the service manager about a consumer."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Take the service manager's address and time limit from the environment."""
        # A leading @ means the abstract namespace, which the kernel spells with a zero byte.
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        micros = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self._watchdog = int(micros) / 1_000_000 if micros.isdigit() and is_ours else 0.0
        """Systemd's ``WatchdogSec``; 0 if there is none for this process."""
        self._is_ready = self._has_failed = False

    @contextmanager
    def telling(self, silent_seconds: Callable[[], float | None]) -> Iterator[None]:
        """Tell the service manager about the consumer until the block ends, which is told too.

        `silent_seconds`: see `Consumer.silent_seconds`.
        """
        if not self._address:
            yield
            return
        try:
            with Ticker(lambda: self._tell(silent_seconds())):
                yield
        finally:
            self.send("STOPPING=1")

    def _tell(self, silent: float | None) -> None:
        if silent is not None and not self._is_ready:
            self._is_ready = True
            self.send("READY=1")
        # Not while the program is silent: systemd then kills it, and the next one continues.
        if self._watchdog and silent is not None and silent < self._watchdog:
            self.send("WATCHDOG=1")

    def send(self, assignment: str) -> None:
        """Send an assignment as one datagram. A failure is logged once, and stops nothing."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A service manager that does not read must not hold anything up.
                sender.settimeout(TICK)
                sender.sendto(assignment.encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                _notify_log.warning("notify_failed", error=str(error))
            self._has_failed = True


_log = telemetry.Log("cli")


PATIENCE = 4.0
"""Seconds that a running job may take to end after the first signal."""


_LOOK_UP = 0.5
"""Seconds for which the main thread waits at a time."""


class Runnable(Protocol):
    """What the program needs of a consumer."""

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since a thread last began to wait (`Consumer.silent_seconds`); None before."""
        ...

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """Return the statements that run on the target now; called from another thread."""
        ...

    def run_once(self, stop: Stop) -> RoundSummary:
        """Run one round and return its summary."""
        ...

    def run(self, stop: Stop) -> RoundSummary:
        """Run rounds until `stop` is requested; return the summary of the last one."""
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
    # The log's place must be known even if parsing fails: it gets the error.
    options: Mapping[str, object] = arguments.said(given, "log-level", "log-file", "log-format")
    verb = RUN if arguments.asks_to_run(given) else given[0]
    screen.use_color(arguments.said(given, "color").get("color", ""))
    try:
        verb, parsed = arguments.parse(given)
        if verb != RUN:
            return _answered(verb, parsed)
        options = with_files_read(parsed, os.environ)
        loaded = _configured(options)
    except ConfigError as error:
        return endings.report_early(error, endings.log_of(verb, options), ExitCode.MISCONFIGURED)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    # Help and the version have been printed.
    except SystemExit as end:
        return int(end.code or 0)
    except Exception as error:  # noqa: BLE001 - a mistake of ours, whose traceback might quote a secret
        return endings.report_of_verb(error, endings.log_of(verb, options))
    endings.watch_threads()
    code = run(loaded, options, _consumer)
    # Whoever reads this starts again after the remedy: the line can be pasted.
    if code == ExitCode.TABLES_STOPPED:
        _log.warning("go_on", command=run_command(loaded.config))
    return code


def _configured(options: Mapping[str, object]) -> Loaded:
    """Return `run`'s settings, checked without touching anything outside; its log is open."""
    loaded = load(options, os.environ)
    limits, log = loaded.config.limits, loaded.program.log
    if (limits.max_files or limits.max_seconds) and not loaded.program.once:
        name = "max-files" if limits.max_files else "max-seconds"
        raise ConfigError(
            f"--{name} ends a round, and without --once the next one follows: add --once, or leave it out"
        )
    check_command(loaded.program.on_halt)
    telemetry.configure(level=log.level, file=log.file, style=log.style)
    return loaded


def _answered(verb: str, options: Mapping[str, object]) -> int:
    """Print what a command answers, or its error, and return its exit code."""
    wish = endings.log_of(verb, options)
    try:
        if verb in LOGGING:
            telemetry.configure(level=wish.level, file=wish.file, style=wish.style)
            endings.watch_threads()
        answer = answered(verb, options, os.environ)
        is_document = "json" in options
        # A document was redacted text by text when it was made, so that it stays one.
        text = answer.text if is_document else telemetry.redact(answer.text)
        screen.write(telemetry.lines_escaped(text), os.environ, is_document=is_document)
    except Exception as error:  # noqa: BLE001 - an error of any kind becomes a sentence and an exit code
        return endings.report_of_verb(error, wish)
    return answer.code


def run(loaded: Loaded, options: Mapping[str, object], consumer: ConsumerFactory) -> int:
    """Run a consumer to its end; turn every error into a log line and an `ExitCode`."""
    config = loaded.config
    ends = {"upstream": config.upstream.identity, "downstream": config.downstream.address}
    # Before anything can fail, so that each log begins with the version and the settings.
    _log.info(
        "started",
        version=arguments.version_text(),
        **ends,
        protocol=config.upstream.protocol if "protocol" in loaded.origins else "",
        time_zone=config.upstream.time_zone,
        state_schema=config.downstream.state_schema,
        once=loaded.program.once,
    )
    for notice in loaded.notices:
        _log.info("notice", text=notice)
    about = {"host": socket.gethostname(), "pid": os.getpid(), "version": __version__, **ends}
    alerts = OnHalt(
        loaded.program.on_halt,
        about | {"state_schema": config.downstream.state_schema},
        SystemClock(),
    )

    def work() -> RoundSummary:
        recorder = Recorder(SystemClock(), __version__)
        # Patience ends before the consumer closes: closing is not a job that could be called off.
        with (
            consumer(**{**options, "progress": recorder}) as running,
            shown(
                recorder,
                running.running_statements,
                alerts.round_finished,
                wants_bar=not loaded.program.no_progress,
            ),
            Notifier().telling(lambda: running.silent_seconds),
            _patience(stop, running),
        ):
            # Only now, since there is nothing to abandon before; called immediately if the second
            # signal came earlier.
            stop.on_abandon(running.abandon)
            return running.run_once(stop) if loaded.program.once else running.run(stop)

    with Stop() as stop, alerts.listening():
        return _ended(loaded, work, stop)


def _ended(loaded: Loaded, work: Callable[[], RoundSummary], stop: Stop) -> int:
    """Run a consumer to its end, and say how it ended."""
    try:
        # The main thread only waits, so that it can take a signal at any time; and Spark installs
        # its own SIGINT handler only if it is started in the main thread. The wait is cut into
        # short ones, since a signal that arrives right before a wait begins does not wake it.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="consumer") as worker:
            outcome = worker.submit(work)
            while not wait([outcome], timeout=_LOOK_UP).done:
                pass
            summary = outcome.result()
    except ConfigError as error:
        return endings.report_error(error, loaded.program.log, ExitCode.MISCONFIGURED)
    except Abandoned:
        return _abandoned(asked=stop.abandoned.is_set())
    except Exception as error:  # noqa: BLE001 - the one place where an error of any kind becomes an exit code
        # After the second signal anything may break: the wish to end is the reason then.
        return (
            _abandoned(asked=True)
            if stop.abandoned.is_set()
            else endings.report_at_end(error, loaded.program.log)
        )
    code = exit_code(summary, once=loaded.program.once)
    if code == ExitCode.TABLES_STOPPED:
        endings.report_tables(summary, loaded.program.log)
    reason = code.name.lower()
    if code == ExitCode.DONE and summary.ended_early.startswith("max-"):
        reason = summary.ended_early
    _log.info("stopped", exit_code=int(code), reason=reason)
    return code


@contextmanager
def _patience(stop: Stop, running: Runnable) -> Iterator[None]:
    """Abandon a job that outlasts `PATIENCE` after the first signal; keep its commits.

    The next start repeats the rest.
    """
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


def exit_code(summary: RoundSummary, *, once: bool) -> ExitCode:
    """Return the exit code that the last round's summary means."""
    # Without --once a table that waits is looked at again, and one that is paused is as somebody
    # wants it: no reason for a code. A table with quarantined rows is not equal to the source,
    # which the end of any run has to say.
    # Nothing but a limit or a signal ends a run with --once before a load has ended, unless the
    # load waits for something.
    load_waits = bool(summary.loading) and not summary.ended_early
    waits = summary.waiting or summary.paused or load_waits or summary.refused_loads
    stopped = summary.halted or summary.quarantined or (once and waits)
    return ExitCode.TABLES_STOPPED if stopped else ExitCode.DONE


def _consumer(**options: Any) -> AbstractContextManager[Runnable]:
    from storage_consumer.api import Consumer  # noqa: PLC0415 - help and wrong settings need not wait for Spark's import

    return Consumer(**options)


def _abandoned(*, asked: bool) -> int:
    """Log an end by a second signal or after `PATIENCE`; return the exit code."""
    # After `PATIENCE` the program ends by itself, as asked; a second signal is a person who did not
    # wait for that.
    code = ExitCode.FAILED if asked else ExitCode.DONE
    _log.warning("stopped", exit_code=int(code), reason="abandoned" if asked else "interrupted")
    return code
