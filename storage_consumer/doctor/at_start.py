"""The cheap part of the examination, which `run` does at its start: two queries about the server's settings."""

from __future__ import annotations

from collections.abc import Iterator

from storage_consumer.doctor.findings import Finding, Verdict
from storage_consumer.doctor.server_rules import AT_START, local_infile
from storage_consumer.downstream.query import Query
from storage_consumer.downstream.server_look import variables_of
from storage_consumer.telemetry import Log

_log = Log("doctor")


def warn_at_start(query: Query, *, wants_local_infile: bool) -> None:
    """Log what is worth a warning. Whatever fails here is logged at level debug: a run that cannot go on finds that out itself."""
    try:
        for found in _findings(query, wants_local_infile=wants_local_infile):
            outcome = found.outcome
            statements = "; ".join(outcome.statements)
            _log.warning(
                "doctor_finding", check=found.check, text=outcome.text, remedy=outcome.remedy, statement=statements
            )
    except Exception as error:  # noqa: BLE001 - nothing that only looks may stop a run
        _log.debug("doctor_failed", error=str(error))


def _findings(query: Query, *, wants_local_infile: bool) -> Iterator[Finding]:
    facts = variables_of(query)
    for name, rule in AT_START.items():
        outcome = local_infile(facts, wanted=wants_local_infile) if rule is local_infile else rule(facts)
        if outcome.verdict in (Verdict.WARN, Verdict.FAIL):
            yield Finding(name, outcome)
