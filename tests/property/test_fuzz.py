"""The fuzz command's targets, for a moment; ``python -m tests.fuzz`` runs them for as long as one likes."""

from __future__ import annotations

import pytest

from tests.fuzz import TARGETS
from tests.fuzzing.engine import Target, fuzz


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutated_files(name: str) -> None:
    """Cut and mutated files bring out nothing but the program's own errors, which name the file."""
    report = fuzz(TARGETS[name], seconds=60, seed=7, inputs=3000)
    if report.finding is not None:
        raise report.finding.error
    assert report.inputs == 3000


def test_findings_are_told() -> None:
    """The engine itself: an input that is not withstood is returned with its error, and ends the run."""

    def check(data: bytes) -> str:
        return f"{1 // len(data)}"

    report = fuzz(Target(name="division", seeds=lambda: [b"a"], check=check), seconds=60, seed=1, inputs=100_000)
    assert report.finding is not None
    assert report.finding.data == b""
    assert isinstance(report.finding.error, ZeroDivisionError)
