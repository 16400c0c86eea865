"""The program: exit codes, messages, and that wrong settings touch nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from storage_consumer import telemetry
from storage_consumer.cli import main
from storage_consumer.cli.endings import ExitCode
from storage_consumer.cli.main import exit_code
from storage_consumer.clock import Stop
from storage_consumer.config.load import load
from storage_consumer.errors import (
    ConfigError,
    DdlFailed,
    LeaseHeld,
    LeaseLost,
    StorageConsumerError,
    StorageUnavailable,
    TargetUnavailable,
)
from storage_consumer.summary import RoundSummary, RunningStatement, TableSummary

HALTED = RoundSummary(tables=(TableSummary(table="a.b", state="halted"),))
WAITING = RoundSummary(tables=(TableSummary(table="a.b", state="waiting"),))
LOADING = RoundSummary(loading=("a.b",))
OPTIONS: dict[str, object] = {
    "upstream_uri": "file:///bucket?protocol=csv",
    "downstream_uri": "mysql://root:geheim@127.0.0.1:1/",
    "include_commit_ts": "true",
}


class Scripted:
    """A consumer whose only round has a given outcome, and which notes how it was used."""

    is_writer = True
    silent_seconds: float | None = None

    def __init__(self, outcome: RoundSummary | BaseException) -> None:
        """`outcome` is returned or raised."""
        self.outcome = outcome
        self.used: list[str] = []
        self.options: dict[str, object] = {}
        self.called_off = threading.Event()

    @contextmanager
    def open(self, **options: object) -> Iterator[Scripted]:
        """Stand for `Consumer(**options)`."""
        self.options = options
        yield self
        self.used.append("closed")

    def run_once(self, stop: Stop | None = None) -> RoundSummary:  # noqa: ARG002 - the interface
        """One round."""
        self.used.append("once")
        return self._end()

    def run(self, stop: Stop) -> RoundSummary:
        """Rounds until a stop, which comes immediately."""
        self.used.append("run")
        stop.request()
        return self._end()

    def running_statements(self) -> tuple[RunningStatement, ...]:
        """None."""
        return ()

    def abandon(self) -> None:
        """Be called off."""
        self.used.append("abandoned")
        self.called_off.set()

    def _end(self) -> RoundSummary:
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


def _run(outcome: RoundSummary | BaseException, **options: object) -> tuple[int, Scripted]:
    given = {**OPTIONS, **options}
    scripted = Scripted(outcome)
    return main.run(load(given, {}), given, scripted.open), scripted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageUnavailable("x"), 1),
        (TargetUnavailable("x"), 1),
        (StorageConsumerError("x"), 1),
        (RuntimeError("x"), 1),
        (ConfigError("x"), 2),
        (LeaseHeld("x"), 3),
        (LeaseLost("x"), 3),
        (DdlFailed("x"), 4),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    """The class of an error alone decides what the program's end says."""
    assert _run(error)[0] == code


def test_an_unexpected_error_is_one_clear_line(caplog: pytest.LogCaptureFixture) -> None:
    """Its kind and first line are said; the rest is for log level debug."""
    _run(ZeroDivisionError("division\nby zero"))
    assert 'failed kind=ZeroDivisionError error="unexpected ZeroDivisionError: division" exit_code=1' in caplog.text
    caplog.clear()
    _run(KeyError())
    assert 'error="unexpected KeyError: KeyError"' in caplog.text


@pytest.mark.parametrize(
    ("summary", "once", "code"),
    [
        (RoundSummary(), True, ExitCode.DONE),
        (RoundSummary(), False, ExitCode.DONE),
        (HALTED, True, ExitCode.TABLES_STOPPED),
        (HALTED, False, ExitCode.TABLES_STOPPED),
        (WAITING, True, ExitCode.TABLES_STOPPED),
        (WAITING, False, ExitCode.DONE),
        (LOADING, True, ExitCode.TABLES_STOPPED),
        (LOADING, False, ExitCode.DONE),
        (replace(LOADING, ended_early="max-seconds"), True, ExitCode.DONE),
        (RoundSummary(refused_loads=("shop.a",)), True, ExitCode.TABLES_STOPPED),
        (RoundSummary(refused_loads=("shop.a",)), False, ExitCode.DONE),
    ],
)
def test_tables_that_stopped_show_in_the_exit_code(summary: RoundSummary, once: bool, code: ExitCode) -> None:  # noqa: FBT001 - a variant
    """A halted table ends with code 4; one that waits, or whose load does or was refused, only where nobody will look again."""
    assert exit_code(summary, once=once) == code


def test_once_is_one_round_and_else_it_goes_on() -> None:
    """--once calls run_once, without it run gets a stop; the consumer is closed either way, and gets all options."""
    code, scripted = _run(RoundSummary(), once="true")
    assert (code, scripted.used) == (0, ["once", "closed"])
    assert set(scripted.options) == {*OPTIONS, "once", "progress"}
    assert _run(RoundSummary())[1].used == ["run", "closed"]


class Stubborn(Scripted):
    """A consumer that ignores the first signal, and fails when it is called off."""

    def run(self, stop: Stop) -> RoundSummary:
        """Be asked twice to end."""
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            stop.requested.wait(5)
        assert self.called_off.wait(5)
        raise RuntimeError("the job was cancelled")


def test_a_second_signal_calls_the_consumer_off(caplog: pytest.LogCaptureFixture) -> None:
    """The consumer's `abandon` is called from outside its thread; what then fails is no error but an abandoned run."""
    stubborn = Stubborn(RoundSummary())
    assert main.run(load(OPTIONS, {}), OPTIONS, stubborn.open) == ExitCode.FAILED
    assert "abandoned" in stubborn.used
    assert "stopped exit_code=1 reason=abandoned" in caplog.text
    assert "cancelled" not in caplog.text


def test_the_start_is_announced_with_all_notices(caplog: pytest.LogCaptureFixture) -> None:
    """The first lines say what is copied where, and each notice, and no secret."""
    caplog.set_level("INFO", logger="storage_consumer")
    _run(RoundSummary(), enable_profiling="true")
    assert "started version=" in caplog.text
    assert "upstream=file:///bucket downstream=127.0.0.1:1 protocol=csv" in caplog.text
    assert 'notice text="--enable-profiling: accepted' in caplog.text
    assert "geheim" not in caplog.text


def _program(*words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STORAGE_CONSUMER_")}
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "storage_consumer", *words],
        env={**clean, **(environ or {})},
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("import time:"))


@pytest.mark.parametrize("words", [["--help"], ["run", "-help"], ["--version"], ["run", "--version"]])
def test_help_and_version_are_quick_and_fine(words: list[str]) -> None:
    """They go to standard output with exit code 0, without waiting for Spark's import."""
    done = _program(*words)
    assert done.returncode == 0
    assert "storage-consumer" in done.stdout
    assert _said(done) == ""
    assert "pyspark" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "storage-consumer: --upstream-uri is missing"),
        (["run", "--upstream-urii", "x"], "did you mean `--upstream-uri`?"),
        (["-upstream-uri", "hdfs://b/p", "-downstream-uri", "mysql://h/"], "hdfs:// is not a storage that can be read"),
        (["-upstream-uri", "file:///b?protocol=csv", "-downstream-uri", "mysql://u:geheim@h/db"], "mysql://u:***@h/db"),
        (["-upstream-uri", "file:///b", "-config", "conf/consumer.toml", "-enable-tidb-extension=x"], "true or false"),
        (["-config", "/nowhere/x.toml"], "/nowhere/x.toml: the file cannot be read"),
    ],
)
def test_wrong_settings_end_with_code_2_and_one_line(words: list[str], message: str) -> None:
    """One line on standard error, which names the remedy and no secret; nothing of Spark was loaded (O12)."""
    done = _program(*words)
    assert done.returncode == 2
    assert message in _said(done)
    assert len(_said(done).splitlines()) == 1
    assert "geheim" not in done.stdout + done.stderr
    assert "pyspark" not in done.stderr
    assert done.stdout == ""


WRONG = (
    ["--tz", "Moon"],
    ["--no-such-flag"],
    ["--config", "/nowhere/x.toml"],
    ["--state-schema", "mysql"],
    ["--log-level", "loud"],
)
"""Settings that are refused at each of the stages of reading them."""


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
@pytest.mark.parametrize("style", ["text", "json"])
def test_wrong_settings_reach_the_log(
    wrong: list[str], style: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Code 2 is an event of the log file, in its form, as well as a line on standard error; a JSON log without a file gets the event alone."""
    given = ["run", "--upstream-uri", "s3://b/p?protocol=csv", "--downstream-uri", "mysql://u:geheim@h:1/", *wrong]
    file = tmp_path / "log"
    for where in (["--log-file", str(file)], [f"-log-file={file}"]):
        assert main.main([*given, *where, "--log-format", style]) == 2
        (line,) = file.read_text(encoding="utf-8").splitlines()
        file.unlink()
        (said,) = capfd.readouterr().err.splitlines()
        assert said.startswith("storage-consumer: ")
        if style == "json":
            event = json.loads(line)
            assert (event["event"], event["kind"], event["exit_code"]) == ("failed", "ConfigError", 2)
            assert said == f"storage-consumer: {event['error']}"
        else:
            assert " level=ERROR event=failed kind=ConfigError error=" in line
            assert line.endswith("exit_code=2")
    assert main.main([*given, "--log-format", style]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert (json.loads(said)["exit_code"] if style == "json" else said[:18]) == (
        2 if style == "json" else "storage-consumer: "
    )


def test_log_of_wrong_settings_by_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the environment or a TOML file names the log; one that can't be opened is named on standard error, and the rest as ever."""
    (toml := tmp_path / "consumer.toml").write_text(f'[consumer]\nlog-file = "{tmp_path}/log"\nlog-format = "json"\n')
    assert main.main(["--config", str(toml), "--tz", "Moon"]) == 2
    assert json.loads((tmp_path / "log").read_text())["exit_code"] == 2
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_FILE", str(tmp_path / "other"))
    assert main.main(["--tz", "Moon"]) == 2
    assert "exit_code=2" in (tmp_path / "other").read_text()
    capfd.readouterr()
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_FILE", "/nowhere/log")
    good = ["--upstream-uri", "file:///b?protocol=csv", "--downstream-uri", "mysql://h:1/"]
    assert main.main(good) == 2
    assert "/nowhere/log: it cannot be written" in capfd.readouterr().err


def test_wrong_settings_found_later(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """So it is where the bucket or the target shows that settings are wrong."""
    given = {**OPTIONS, "log_file": str(tmp_path / "log"), "log_format": "json"}
    telemetry.configure(file=str(tmp_path / "log"), style="json")
    assert main.run(load(given, {}), given, Scripted(ConfigError("no such bucket")).open) == 2
    events = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (events[-1]["event"], events[-1]["error"], events[-1]["exit_code"]) == ("failed", "no such bucket", 2)
    assert capfd.readouterr().err == "storage-consumer: no such bucket\n"


def test_the_environment_is_read(tmp_path: Path) -> None:
    """Variables of the process count, and a bad one is named."""
    password = tmp_path / "password"
    password.write_text("geheim")
    environ = {
        "STORAGE_CONSUMER_UPSTREAM_URI": "s3://b/p?protocol=csv",
        "STORAGE_CONSUMER_DOWNSTREAM_URI": "mysql://h:1/",
        "STORAGE_CONSUMER_INCLUDE_COMMIT_TS": "yes",
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": str(password),
        "STORAGE_CONSUMER_TZ": "Moon",
    }
    done = _program("run", environ=environ)
    assert (done.returncode, "environment variable STORAGE_CONSUMER_TZ: a time zone" in done.stderr) == (2, True)


@pytest.mark.parametrize("number", ["9" * 5_000, str(1 << 64), "-1", "1.5", "1e3", "٣", ""])
def test_numbers_that_are_no_tso(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever stands for a TSO or a checksum is a wrong argument, and never a crash."""
    target = ["--downstream-uri", "mysql://root@127.0.0.1:1/"]
    for words in (
        ["history", "--table", "a.b", f"--at={number}"],
        ["ddl", "skip", "--table", "a.b", f"--version={number}"],
        ["ddl", "skip", "--table", "a.b", "--version=1", f"--checksum={number}"],
    ):
        assert main.main([*words, *target]) == ExitCode.MISCONFIGURED
        assert "is expected" in capsys.readouterr().err
