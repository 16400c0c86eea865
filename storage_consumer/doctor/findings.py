"""What a check finds: a verdict, a line that says why, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The one word for what a check found."""

    OK = "ok"
    WARN = "warn"
    """It works, but slower, with a weaker promise, or not for every table."""
    FAIL = "fail"
    """A run would end, or halt a table."""
    NOT_LOOKED_AT = "not looked at"
    """The text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule says of its facts."""

    verdict: Verdict
    text: str
    """One line: the fact, with its figures."""
    remedy: str = ""
    """What to do, in a sentence; empty if there is nothing to do."""
    statements: tuple[str, ...] = ()
    """The remedy as SQL for an administrator of the target, each without a semicolon."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    """Its name in `checks.CHECKS`."""
    outcome: Outcome

    def fails(self, check: str) -> bool:
        """Return whether it is of this check, and a fault."""
        return self.check == check and self.outcome.verdict is Verdict.FAIL


def ok(text: str) -> Outcome:
    """Return that all is well."""
    return Outcome(Verdict.OK, text)


def warn(text: str, remedy: str, *statements: str) -> Outcome:
    """Return a warning with its remedy."""
    return Outcome(Verdict.WARN, text, remedy, statements)


def fail(text: str, remedy: str = "", *statements: str) -> Outcome:
    """Return a fault; without a `remedy` the text holds it."""
    return Outcome(Verdict.FAIL, text, remedy, statements)


def not_looked_at(why: str) -> Outcome:
    """Return that nothing is known, and why."""
    return Outcome(Verdict.NOT_LOOKED_AT, why)


def worst(findings: tuple[Finding, ...]) -> Verdict:
    """Return `FAIL` or `WARN` if any finding is that, else `OK`."""
    found = {each.outcome.verdict for each in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)
