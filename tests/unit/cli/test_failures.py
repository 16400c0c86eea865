"""Errors: every command ends each of them with the same sentence on standard error and in the log file, without secrets, and with its code."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Never

import pytest

from storage_consumer import telemetry
from storage_consumer.cli import endings, main
from storage_consumer.cli.endings import ExitCode
from storage_consumer.cli.verbs import LOGGING, RUN, VERBS
from storage_consumer.config.load import load
from storage_consumer.config.sources import LogWish
from storage_consumer.errors import LeaseLost, StateGone, StorageConsumerError, TargetUnavailable
from storage_consumer.summary import RoundSummary, TableSummary
from tests.unit.cli.test_main import HALTED, OPTIONS, Scripted

HUSH = "geheim-und-lang"
TARGET = ["--downstream-uri", f"mysql://root:{HUSH}@127.0.0.1:1/"]
NO_BUCKET = ["--upstream-uri", "file:///no/such/bucket?protocol=csv"]
NO_STORE = [
    "--upstream-uri",
    f"s3://b/p?endpoint=http://127.0.0.1:1&region=x&access-key=AKIAPLANTED&secret-access-key={HUSH}&protocol=csv",
]
PLANTED: Mapping[str, tuple[list[str], int]] = {
    RUN: ([*NO_BUCKET, *TARGET, "--log-level", "loud"], 2),
    "inspect": (NO_BUCKET, 2),
    "status": (TARGET, 1),
    "plan": ([*NO_BUCKET, *TARGET], 2),
    "changes": ([*NO_BUCKET, "--format", "xml"], 2),
    "serve": (["--meta-uri", "sqlite:///:memory:", "--destinations", "/no/such"], 2),
    "doctor": ([*TARGET, "--only", "nothing"], 2),
    "verify": (["--source", f"tidb://root:{HUSH}@127.0.0.1:1/", *TARGET], 1),
    "ddl": (["skip", "--table", "a.b", "--version", "1", *TARGET], 1),
    "table": (["resume", "--table", "a.b", *TARGET], 1),
    "load": (["cancel", "--table", "a.b", *TARGET], 1),
    "quarantine": (["retry", "--all", *TARGET], 1),
    "history": (TARGET, 1),
    "rebind": ([*NO_BUCKET, *TARGET], 1),
    "tso": (["never"], 2),
    "init": ([*NO_STORE, "--output", "/no/such/folder/file.toml"], 1),
    "completion": (["powershell"], 2),
}
"""Command → words with which it fails, and the code."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The environment names a log of JSON, and standard error has no colours."""
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_FILE", str(tmp_path / "log"))
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_FORMAT", "json")
    monkeypatch.setenv("NO_COLOR", "1")
    # The level of an earlier test would stay.
    telemetry.configure()
    yield
    telemetry.configure()
    telemetry.forget_secrets()


def logged(tmp_path: Path) -> dict[str, Any]:
    """The last event of the log."""
    found = json.loads((tmp_path / "log").read_text(encoding="utf-8").splitlines()[-1])
    assert isinstance(found, dict)
    return found


def check(code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The sentence on standard error, which is that of the log, with this code and without the secret."""
    output, errors = capfd.readouterr()
    event = logged(tmp_path)
    assert (event["event"], event["exit_code"], event["level"]) == ("failed", code, "ERROR")
    assert errors == f"storage-consumer: {event['error']}\n"
    assert HUSH not in output + errors + (tmp_path / "log").read_text(encoding="utf-8")
    return errors


def test_every_command_is_here() -> None:
    """A command that is new gets its planted failure."""
    assert PLANTED.keys() <= VERBS.keys()
    assert [verb for verb in VERBS if verb not in PLANTED] == []


@pytest.mark.parametrize("verb", PLANTED)
def test_planted_failure(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What does not answer, does not exist or is wrong is one sentence."""
    words, code = PLANTED[verb]
    assert main.main([verb, *words]) == code
    check(code, tmp_path, capfd)


@pytest.mark.parametrize("verb", VERBS)
def test_line_that_does_not_parse(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong flag is code 2, and its value, which may be a secret, is not shown; a wrong command is no other case."""
    assert main.main([verb, f"--no-such-flag={HUSH}"]) == ExitCode.MISCONFIGURED
    assert f"see storage-consumer {verb} --help" in check(2, tmp_path, capfd)
    assert main.main([f"{verb}x"]) == ExitCode.MISCONFIGURED
    assert f"did you mean `{verb}`?" in check(2, tmp_path, capfd)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in LOGGING])
@pytest.mark.parametrize(
    ("error", "code"),
    [(ZeroDivisionError(f"by {HUSH}\nand more"), 1), (StateGone("gone"), 1), (LeaseLost("lost"), 3)],
    ids=lambda given: type(given).__name__,
)
def test_mistake_of_ours(
    verb: str,
    error: Exception,
    code: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even an error that nobody expected is a sentence and a code; its traceback is for level debug, and holds no secret."""

    def fails(_own: object, _session: object) -> Never:
        raise error

    telemetry.register_secret(HUSH)
    monkeypatch.setattr(importlib.import_module(f"storage_consumer.cli.{VERBS[verb].module}"), f"answer_{verb}", fails)
    words = ["bash"] if verb == "completion" else []
    assert main.main([verb, *words]) == code
    check(code, tmp_path, capfd)
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_LEVEL", "debug")
    assert main.main([verb, *words]) == code
    check(code, tmp_path, capfd)
    assert "test_failures.py" in logged(tmp_path)["traceback"]
    # Without a file, the traceback of what nobody expected is on standard error.
    monkeypatch.delenv("STORAGE_CONSUMER_LOG_FILE")
    assert main.main([verb, *words]) == code
    said = capfd.readouterr().err
    assert ("Traceback" in said) == (not isinstance(error, StorageConsumerError))
    assert HUSH not in said


@pytest.mark.parametrize("error", [LeaseLost("lost"), TargetUnavailable(HUSH), RuntimeError(HUSH)])
def test_end_of_run(error: Exception, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What ends `run` is on standard error too where the log goes into a file."""
    telemetry.register_secret(HUSH)
    telemetry.configure(file=str(tmp_path / "log"), style="json")
    given = {**OPTIONS, "log_file": str(tmp_path / "log"), "log_format": "json"}
    code = main.run(load(given, {}), given, Scripted(error).open)
    check(code, tmp_path, capfd)


def test_tables_that_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are named on standard error too, the first one with its error; a log on standard error has said it."""
    stopped = RoundSummary(tables=(TableSummary(table="a.b", state="halted", error="no such column"), *HALTED.tables))
    telemetry.configure(file=str(tmp_path / "log"))
    given = {**OPTIONS, "log_file": str(tmp_path / "log")}
    assert main.run(load(given, {}), given, Scripted(stopped).open) == ExitCode.TABLES_STOPPED
    said = "storage-consumer: tables stopped: a.b (halted), a.b (halted); no such column\n"
    assert capfd.readouterr().err == said
    endings.report_tables(stopped, LogWish())
    assert capfd.readouterr().err == ""


def test_log_that_cannot_be_written(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose log file cannot be opened says its error once, and nothing of the log."""
    monkeypatch.setenv("STORAGE_CONSUMER_LOG_FILE", "/no/such/folder/log")
    assert main.main(["tso", "never"]) == ExitCode.MISCONFIGURED
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("storage-consumer: tso: ")


def test_only_a_file_gets_json(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file, only `run` writes its log to standard error: whoever calls another command reads a sentence."""
    monkeypatch.delenv("STORAGE_CONSUMER_LOG_FILE")
    assert main.main(["tso", "never"]) == ExitCode.MISCONFIGURED
    assert capfd.readouterr().err.startswith("storage-consumer: tso: ")
    assert main.main(["run", "--tz", "Moon"]) == ExitCode.MISCONFIGURED
    assert json.loads(capfd.readouterr().err)["exit_code"] == 2


def test_flag_of_each_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Commands that reach out take the log's flags, which beat the environment."""
    log = tmp_path / "other"
    assert main.main(["status", *TARGET, "--log-file", str(log), "--log-format=text"]) == ExitCode.FAILED
    assert " level=ERROR event=failed kind=TargetUnavailable error=" in log.read_text(encoding="utf-8")
    assert capfd.readouterr().err.count("\n") == 1
    assert not (tmp_path / "log").exists()


def test_thread_that_ends_with_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a line of the log, not a traceback with all that it quotes."""

    def fails() -> Never:
        raise ValueError(HUSH)

    telemetry.register_secret(HUSH)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    telemetry.configure(file=str(tmp_path / "log"), style="json")
    endings.watch_threads()
    thread = threading.Thread(target=fails, name="beside")
    thread.start()
    thread.join()
    event = logged(tmp_path)
    assert (event["event"], event["thread"], event["error"]) == (
        "thread_failed",
        "beside",
        "unexpected ValueError: ***",
    )
    assert capfd.readouterr().err == ""
