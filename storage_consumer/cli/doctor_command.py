"""The command `doctor`: can a consumer run? One line per check, or JSON with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import columns, wrapped
from storage_consumer.cli.verbs import DoctorFlags
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.sources import is_given
from storage_consumer.errors import ConfigError
from storage_consumer.operating.checks import GROUPS, Finding, Verdict, examined, group_of, worst
from storage_consumer.operating.doctor_facts import DoctorInput
from storage_consumer.session import Session

_NOBODYS = {"upstream_uri": "file:///none", "downstream_uri": "mysql://root@127.0.0.1:3306/"}
"""Stand-ins for an end that was not given: nothing is asked of it."""
_LEAST = 40
"""Columns that a text needs to stand beside the name of its check."""
_MARKS = {Verdict.OK: "ok", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL", Verdict.NOT_LOOKED_AT: "-"}


def answer_doctor(own: DoctorFlags, session: Session) -> Answer:
    """Return what every check found; `TABLES_STOPPED` if one failed.

    Raises `ConfigError` if the arguments are wrong. Whatever does not answer is a finding.
    """
    groups = tuple(part.strip() for part in (own.only or "").split(",") if part.strip())
    for name in groups:
        if name not in GROUPS:
            known = ", ".join(GROUPS)
            raise ConfigError(
                f"--only: there is no group {name!r}{did_you_mean(name, GROUPS)}; there are {known}"
            )
    given = doctor_input(session)
    findings = examined(given, groups or tuple(GROUPS))
    code = ExitCode.TABLES_STOPPED if worst(findings) is Verdict.FAIL else ExitCode.DONE
    return told(own, document(findings, given), _lines(findings), code)


def doctor_input(session: Session) -> DoctorInput:
    """Return what to examine; raise `ConfigError` if options are wrong or name no end."""
    there = {end: is_given(end, session.options, session.environ) for end in _NOBODYS}
    if not any(there.values()):
        raise ConfigError(
            "there is nothing to look at: give --upstream-uri, --downstream-uri, or both"
        )
    ends = {end: value for end, value in _NOBODYS.items() if not there[end]}
    loaded = Session({**session.options, **ends}, session.environ).ends
    return DoctorInput(
        config=loaded.config,
        secrets=loaded.secrets,
        origins=loaded.origins,
        environ=session.environ,
        makes_export=loaded.source is not None,
        has_bucket=there["upstream_uri"],
        has_target=there["downstream_uri"],
        seconds=max(10.0, 2.0 * loaded.config.downstream.connect_timeout),
    )


def _lines(findings: tuple[Finding, ...]) -> Iterator[str]:
    """Yield one line a check, with its remedy below."""
    wide, width = max(len(each.check) for each in findings), columns()
    for number, (group, members) in enumerate(groupby(findings, lambda each: group_of(each.check))):
        yield from [""] * (number > 0)
        yield group
        for each in members:
            first = f"  {_MARKS[each.verdict]:<5} {each.check:<{wide}}  "
            indent = " " * len(first)
            if width is not None and width < len(first) + _LEAST:
                yield first.rstrip()
                first = indent = " " * len("  ok    ")
            yield from wrapped(each.text, first, indent)
            if each.remedy:
                yield from wrapped(each.remedy, f"{indent}→ ", f"{indent}  ")
            # Never wrapped: they are to be pasted.
            yield from (f"{indent}  {statement};" for statement in each.statements)
    yield ""
    counts = Counter(each.verdict for each in findings)
    yield ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def document(findings: tuple[Finding, ...], given: DoctorInput) -> dict[str, Any]:
    """Return the findings as JSON takes them; the keys are part of the program's interface."""
    counts = Counter(each.verdict for each in findings)
    return {
        "verdict": worst(findings).value,
        "bucket": given.config.upstream.identity if given.has_bucket else None,
        "target": given.config.downstream.address if given.has_target else None,
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
        "findings": documents(findings),
    }


def documents(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings alone as JSON takes them."""
    return [{"group": group_of(each.check)} | msgspec.to_builtins(each) for each in findings]
