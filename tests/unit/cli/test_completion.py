"""Completion scripts, in the shells themselves."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from storage_consumer.cli.local_commands import script
from storage_consumer.cli.main import main

CASES = [
    (["sta"], {"status"}),
    (["table", "rel"], {"reload-done"}),
    (["status", "--max"], {"--max-lag"}),
    (["run", "--log-format", "j"], {"json"}),
    (["tso", "--color", "n"], {"never"}),
    (["help", "his"], {"history"}),
    (["run", "--config", "change"], {"changefeed.toml"}),
]
ZSH = """\
autoload -Uz compinit; compinit -u -D; eval "$(<./script)"
show() { print -r -- "$BUFFER" >./result; zle kill-whole-line; }
zle -N show; bindkey '^T' show; touch ./ready
"""
"""Makes Ctrl-T store the line as it stands."""


def _needed(shell: str) -> str:
    found = shutil.which(shell)
    assert found, f"{shell} is not installed; tests/run.sh all installs it"
    return found


def _say(command: list[str], folder: Path) -> str:
    (folder / "changefeed.toml").touch()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash(words: list[str], expected: set[str], tmp_path: Path) -> None:
    """Bash completes commands, actions, flags, values and file names."""
    (tmp_path / "script").write_text(script("bash"), encoding="utf-8")
    line = " ".join(["storage-consumer", *words])
    code = f'. ./script; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_storage_consumer; printf "%s\\n" "${{COMPREPLY[@]}}"'
    assert set(_say([_needed("bash"), "--norc", "-c", code], tmp_path).split()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish(words: list[str], expected: set[str], tmp_path: Path) -> None:
    """Fish completes the same."""
    (tmp_path / "script").write_text(script("fish"), encoding="utf-8")
    code = f'source ./script; complete -C "storage-consumer {" ".join(words)}"'
    said = _say([_needed("fish"), "--no-config", "-c", code], tmp_path)
    assert {line.split("\t")[0] for line in said.splitlines()} == expected


@pytest.mark.slow
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_zsh(words: list[str], expected: set[str], tmp_path: Path) -> None:
    """Zsh completes the same, as typed in a terminal."""
    (tmp_path / "script").write_text(script("zsh"), encoding="utf-8")
    (tmp_path / "changefeed.toml").touch()
    line = " ".join(["storage-consumer", *words])
    ours, its = pty.openpty()
    # Its output is small enough for the terminal's buffer as long as nothing is listed.
    command = [_needed("zsh"), "-f", "-i"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=its, stdout=its, stderr=its, start_new_session=True) as shell:
        try:
            os.write(ours, ZSH.encode())
            _wait_for(tmp_path / "ready")
            os.write(ours, f"{line}\t".encode())
            os.write(ours, b"\x14")
            _wait_for(tmp_path / "result")
        finally:
            shell.kill()
            os.close(its)
            os.close(ours)
    whole = line.removesuffix(words[-1]) + next(iter(expected))
    shown = (tmp_path / "result").read_text(encoding="utf-8").strip()
    assert shown.rstrip("=") == whole


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not (path.exists() and (path.name == "ready" or path.stat().st_size)):
        assert time.monotonic() < deadline, path.name
        time.sleep(0.02)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``completion SHELL`` prints the script, and nothing else."""
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == f"{script(shell)}\n"


@pytest.mark.parametrize(
    ("shell", "holds"), [("/bin/bash", "complete -o"), ("/usr/bin/zsh", "#compdef"), ("fish", "complete -c")]
)
def test_shell_of_the_user(
    shell: str, holds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name it is the one of $SHELL."""
    monkeypatch.setenv("SHELL", shell)
    assert main(["completion"]) == 0
    assert holds in capsys.readouterr().out


@pytest.mark.parametrize(("shell", "why"), [("/bin/tcsh", "$SHELL is tcsh"), ("", "$SHELL is not set")])
def test_shell_that_nobody_knows(
    shell: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks for the name, by a command that can be pasted."""
    monkeypatch.setenv("SHELL", shell)
    assert main(["completion"]) == 2
    said = capsys.readouterr().err
    assert (why in said, "`storage-consumer completion bash`" in said) == (True, True)
