"""The fuzz command's targets, for a moment; ``python -m tests.campaigns.fuzz`` runs them for as long as one likes."""

from __future__ import annotations

import pytest

from tests.campaigns.fuzz import TARGETS
from tests.campaigns.fuzzing import growth
from tests.campaigns.fuzzing.engine import Target, fuzz

pytestmark = [pytest.mark.alone, pytest.mark.slow]
INPUTS = {"growth": 400}
"""How many where one takes long."""


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutated_files(name: str) -> None:
    """Cut and mutated files bring out nothing but the program's own errors, which name the file."""
    inputs = INPUTS.get(name, 3000)
    report = fuzz(TARGETS[name], seconds=120, seed=7, inputs=inputs)
    if report.finding is not None:
        raise report.finding.error
    assert report.inputs == inputs


@pytest.mark.parametrize("unit", ["'\\", "/* a ", '"', "`", "(", " WITH `a` AS (", ",`a`(", " TO "])
def test_long_texts(unit: str) -> None:
    """A text of 100 KB takes about four times as long as one of 25 KB."""
    assert growth.growth(growth.repeated("ALTER TABLE `t` ", unit), short=25_000) <= growth.MOST


def test_growth_is_seen() -> None:
    """The target itself: work that grows with the square is found."""

    def reads(text: str) -> None:
        for at in range(len(text)):
            text.count("\1a", at)

    assert growth.growth(lambda length: "a" * length * 2, reads) > growth.MOST


def test_findings_are_told() -> None:
    """The engine itself: an input that is not withstood is returned with its error, and ends the run."""

    def check(data: bytes) -> str:
        return f"{1 // len(data)}"

    report = fuzz(Target(name="division", seeds=lambda: [b"a"], check=check), seconds=60, seed=1, inputs=100_000)
    assert report.finding is not None
    assert report.finding.data == b""
    assert isinstance(report.finding.error, ZeroDivisionError)
