"""The typed keywords of `Consumer`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.program import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keywords", "complaint"),
    [
        ("once=True, flush_interval=2.5, config=['a.toml']", ""),
        ("flush_intervall='2s'", 'Unexpected keyword argument "flush_intervall"'),
        ("once=3", 'has incompatible type "int"'),
    ],
)
def test_a_type_checker_sees_a_wrong_keyword(keywords: str, complaint: str, tmp_path: Path) -> None:
    """A program that misspells a keyword, or gives it a value of another kind, is refused before it runs."""
    program = tmp_path / "program.py"
    program.write_text(f"from storage_consumer import Consumer\n\nConsumer(upstream_uri='file:///b', {keywords})\n")
    # A process of its own: the type checker changes the recursion limit of the one that it runs in.
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", str(program)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (bool(done.returncode), complaint in done.stdout, done.stderr) == (bool(complaint), True, ""), done.stdout
