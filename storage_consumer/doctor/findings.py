"""What a check finds: a verdict, a line that says why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "bucket": "What TiCDC writes, and what of it can be read.",
        "target": "The database server, its settings, and our account's rights.",
        "spark": "What Spark needs on this machine.",
        "network": "How the bucket and the target are reached.",
        "state": "What earlier runs left in the target.",
    }
)
"""Group → what it is about."""


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
class Finding:
    """What one check found."""

    verdict: Verdict
    text: str
    """One line: the fact, with its figures."""
    remedy: str = ""
    """What to do, in a sentence; empty if there is nothing to do."""
    statements: tuple[str, ...] = ()
    """The remedy as SQL for an administrator of the target, each without a semicolon."""
    check: str = ""
    """The name of the check, see `checks.CHECKS`."""


def ok(text: str) -> Finding:
    """Return that all is well."""
    return Finding(Verdict.OK, text)


def warn(text: str, remedy: str, *statements: str) -> Finding:
    """Return a warning with its remedy."""
    return Finding(Verdict.WARN, text, remedy, statements)


def fail(text: str, remedy: str = "", *statements: str) -> Finding:
    """Return a fault; without a `remedy` the text holds it."""
    return Finding(Verdict.FAIL, text, remedy, statements)


def not_looked_at(why: str) -> Finding:
    """Return that nothing is known, and why."""
    return Finding(Verdict.NOT_LOOKED_AT, why)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return `FAIL` or `WARN` if any finding is that, else `OK`."""
    found = {each.verdict for each in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)


def group_of(check: str) -> str:
    """Return the group of a check."""
    return check.partition("-")[0]
