"""The examination: each check, and what becomes of one whose facts could not be read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from storage_consumer.doctor.checks import AT_START, CHECKS, name_of
from storage_consumer.doctor.facts import DoctorInput, Facts, Unread
from storage_consumer.doctor.findings import GROUPS, Finding, Verdict, fail, group_of, not_looked_at
from storage_consumer.downstream.existing_names import Query
from storage_consumer.downstream.server_facts import Variables, variables_of
from storage_consumer.telemetry import Log

_log = Log("doctor")


def examined(given: DoctorInput, groups: Collection[str] = tuple(GROUPS)) -> tuple[Finding, ...]:
    """Return one finding for each check of these groups, in the order of `CHECKS`."""
    facts = Facts(given, groups)
    return tuple(found_by(name, facts, groups) for name in CHECKS if group_of(name) in groups)


def found_by(name: str, facts: Facts, groups: Collection[str] = tuple(GROUPS)) -> Finding:
    """Return what a check finds. Of facts that could not be read one check reports the fault, and the others were not looked at.

    `groups`: those that are examined; a check of another one reports nothing.
    """
    try:
        found = CHECKS[name].judge(facts)
    except Unread as fault:
        if fault.check == name:
            found = fail(fault.why)
        else:
            is_reported = fault.check and group_of(fault.check) in groups
            found = not_looked_at(f"{fault.check} failed" if is_reported else fault.why)
    return replace(found, check=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartFacts:
    """What two queries show."""

    variables: Variables
    local_infile: bool


def warn_at_start(query: Query, *, wants_local_infile: bool) -> None:
    """Log what is worth a warning at the start of a run, by two queries about the server's settings.

    Whatever fails here is logged at level debug: a run that cannot go on finds that out itself.
    """
    try:
        facts = _StartFacts(variables=variables_of(query), local_infile=wants_local_infile)
        for judge in AT_START:
            found = judge(facts)
            if found.verdict in (Verdict.WARN, Verdict.FAIL):
                statements = "; ".join(found.statements)
                _log.warning(
                    "doctor_finding", check=name_of(judge), text=found.text, remedy=found.remedy, statement=statements
                )
    except Exception as error:  # noqa: BLE001 - nothing that only looks may stop a run
        _log.debug("doctor_failed", error=str(error))
