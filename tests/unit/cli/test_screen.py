"""The program on a terminal and in a pipe: colours, and readers that go away early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage_consumer.cli import screen
from storage_consumer.cli.verbs import RUN, VERBS
from storage_consumer.watch.report import Health
from tests.harness.program import ROOT
from tests.harness.small_bucket import SmallBucket, row
from tests.harness.terminal import terminal
from tests.harness.waiting import wait_until

_RED = "\x1b[31m"
_NOT_HERE = ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "COLUMNS", "LINES", "TERM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the program ended, and what it wrote."""

    code: int
    screen: str
    errors: str


def environment(given: dict[str, str]) -> dict[str, str]:
    """The environment of the program: this process's without what the tests are about."""
    kept = {k: v for k, v in os.environ.items() if k not in _NOT_HERE and not k.startswith("STORAGE_CONSUMER_")}
    return {**kept, "TERM": "xterm", **given}


def command(*words: str) -> list[str]:
    """The program with these words."""
    return [sys.executable, "-m", "storage_consumer", *words]


def on_terminal(*words: str, **given: str) -> Ended:
    """Run the program with standard output on a terminal of 24 lines."""
    with terminal(80) as screen:
        process = subprocess.Popen(
            command(*words), cwd=ROOT, env=environment(given), stdout=screen.stream, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            screen.show()
        _, errors = process.communicate(timeout=1)
        screen.show()
        return Ended(code=process.returncode, screen=screen.written, errors=errors)


def in_pipe(*words: str, **given: str) -> Ended:
    """Run the program with its output in pipes that are read to their end."""
    done = subprocess.run(
        command(*words), cwd=ROOT, env=environment(given), capture_output=True, text=True, timeout=60, check=False
    )
    return Ended(code=done.returncode, screen=done.stdout, errors=done.stderr)


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """The URI of a bucket without metadata, which `inspect` misses."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.t")
    found.rows("d.t", 1, row("d.t", 2, "1", '"one"'))
    return f"file://{found.root}"


@pytest.mark.parametrize(
    ("given", "words", "is_red"),
    [
        ({}, (), True),
        ({"NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": ""}, (), True),
        ({"TERM": "dumb"}, (), False),
        ({"CLICOLOR": "0"}, (), False),
        ({}, ("--color", "never"), False),
        ({"NO_COLOR": "1"}, ("--color=always",), True),
        ({}, ("--json", "--color", "always"), False),
    ],
)
def test_colours_on_a_terminal(bucket: str, given: dict[str, str], words: tuple[str, ...], is_red: bool) -> None:  # noqa: FBT001 - a variant
    """State words are coloured, unless the environment or the command line says otherwise; a document never is."""
    ended = on_terminal("inspect", "--upstream-uri", bucket, *words, **given)
    assert ended.code == 0
    assert (_RED + "missing" in ended.screen, "\x1b" in ended.screen) == (is_red, is_red)


@pytest.mark.parametrize("health", Health)
def test_each_word_for_a_feed_has_a_colour(health: Health) -> None:
    """The first word of a status stands out, whichever it is."""
    assert screen.painted(f"{health}: why").startswith("\x1b[")


@pytest.mark.parametrize(("term", "clears"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_can_only_print_is_not_cleared(term: str, *, clears: bool) -> None:
    """There a watch shows one look below the other, as in a pipe."""
    words = command("status", "--watch", "--downstream-uri", "mysql://root@localhost/?unix-socket=/nowhere")
    with terminal(80) as shown:
        process = subprocess.Popen(words, cwd=ROOT, env=environment({"TERM": term}), stdout=shown.stream)
        wait_until("a look", lambda: "cannot connect" in "".join(shown.show()))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
        assert ("\x1b[2J" in shown.written) == clears


def test_colours_in_a_pipe(bucket: str) -> None:
    """A pipe gets none, but for one who asks; an error has its colour by standard error's own rule."""
    look = ("inspect", "--upstream-uri", bucket)
    assert "\x1b" not in in_pipe(*look).screen
    for name in ("CLICOLOR_FORCE", "FORCE_COLOR"):
        assert _RED in in_pipe(*look, **{name: "1"}).screen
        assert "\x1b" not in in_pipe(*look, **{name: "0"}).screen
    wrong = in_pipe("tso", "--colour", "always")
    assert (wrong.code, "did you mean `--color`?" in wrong.errors, "\x1b" in wrong.errors) == (2, True, False)
    assert in_pipe("tso", "x", CLICOLOR_FORCE="1").errors.startswith(f"{_RED}storage-consumer\x1b[0m: ")
    assert "choose from auto, always, never" in in_pipe("tso", "--color", "sometimes").errors


@pytest.mark.parametrize("verb", VERBS)
def test_reader_that_goes_away(verb: str, bucket: str) -> None:
    """As ``head`` does it: no traceback, no other exit code."""
    answers = {
        "tso": ["tso", "1"],
        "completion": ["completion", "bash"],
        "inspect": ["inspect", "--upstream-uri", bucket],
    }
    for words in ([verb, "--help"], answers.get(verb, [])):
        if not words:
            continue
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            done = subprocess.run(
                command(*words),
                cwd=ROOT,
                env=environment({}),
                stdout=pipe,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (0, "")


def test_output_that_cannot_be_written() -> None:
    """A full disk or a closed output is an error; a closed standard error hides no code."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("tso", "1"),
            cwd=ROOT,
            env=environment({}),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        "storage-consumer: the answer could not be written: No space left on device\n",
    )
    for redirected, code in ((">&-", 1), ("nonsense 2>&-", 2), ("--help >&-", 1)):
        shell = subprocess.run(
            ["sh", "-c", f'exec "$0" -m storage_consumer tso {redirected}', sys.executable],
            cwd=ROOT,
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (shell.returncode, "Traceback" in shell.stderr) == (code, False)


def test_every_command_takes_them() -> None:
    """Each command but `run` has --color in its help."""
    for verb in VERBS.values():
        names = {f"--{flag.name}" for flag in verb.flags}
        assert ("--color" in names) == (verb.name != RUN)
