"""The command `doctor`: is everything as a consumer needs it? One line for each check, or one JSON document with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from storage_consumer.cli.answer import Answer
from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.layout import columns, wrapped
from storage_consumer.config.load import Loaded, load, with_files_read
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.config.sources import is_given
from storage_consumer.doctor.examination import examined
from storage_consumer.doctor.facts import DoctorInput
from storage_consumer.doctor.findings import GROUPS, Finding, Verdict, group_of, worst
from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import json_text, register_secret

_ONLY_HERE = ("only", "json")
_ENDS = ("upstream_uri", "downstream_uri")
_NOBODYS = {"upstream_uri": "file:///none", "downstream_uri": "mysql://root@127.0.0.1:3306/"}
"""Stand-ins for an end that was not given: nothing is asked of it."""
_LEAST = 40
"""Columns that a text needs to stand beside the name of its check."""
_MARKS = {Verdict.OK: "ok", Verdict.WARN: "WARN", Verdict.FAIL: "FAIL", Verdict.NOT_LOOKED_AT: "-"}


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return what every check found; `TABLES_STOPPED` if one failed.

    Raises `ConfigError` if the arguments are wrong. Whatever does not answer is a finding.
    """
    own = {name: str(options[name]) for name in _ONLY_HERE if options.get(name) is not None}
    groups = _groups(own.get("only", ""))
    given = doctor_input({name: value for name, value in options.items() if name not in _ONLY_HERE}, environ)
    findings = examined(given, groups)
    code = ExitCode.TABLES_STOPPED if worst(findings) is Verdict.FAIL else ExitCode.DONE
    if "json" in own:
        return Answer(json_text(document(findings, given)), code)
    return Answer("\n".join(_lines(findings)) + "\n", code)


def doctor_input(options: Mapping[str, object], environ: Mapping[str, str]) -> DoctorInput:
    """Return what is examined under these options; raise `ConfigError` if they are wrong, or name neither bucket nor target."""
    given = with_files_read(options, environ)
    there = {end: is_given(end, given, environ) for end in _ENDS}
    if not any(there.values()):
        raise ConfigError("there is nothing to look at: give --upstream-uri, --downstream-uri, or both")
    ends = {end: value for end, value in _NOBODYS.items() if not there[end]}
    loaded: Loaded = load({**given, **ends}, environ)
    for secret in loaded.hidden:
        register_secret(secret)
    return DoctorInput(
        config=loaded.config,
        secrets=loaded.secrets,
        origins=loaded.origins,
        environ=environ,
        has_bucket=there["upstream_uri"],
        has_target=there["downstream_uri"],
        seconds=max(10.0, 2.0 * loaded.config.downstream.connect_timeout),
    )


def _groups(only: str) -> tuple[str, ...]:
    """Return the groups that were asked for, all of them if none was named."""
    wanted = tuple(part.strip() for part in only.split(",") if part.strip())
    for name in wanted:
        if name not in GROUPS:
            known = ", ".join(GROUPS)
            raise ConfigError(f"--only: there is no group {name!r}{did_you_mean(name, GROUPS)}; there are {known}")
    return wanted or tuple(GROUPS)


def _lines(findings: tuple[Finding, ...]) -> Iterator[str]:
    """Yield one line a check, with its remedy below."""
    wide = max(len(each.check) for each in findings)
    group = ""
    for each in findings:
        if group_of(each.check) != group:
            yield from ([""] if group else [])
            group = group_of(each.check)
            yield group
        yield from _of(each, wide)
    yield ""
    yield _summary(findings)


def _of(finding: Finding, wide: int) -> Iterator[str]:
    width = columns()
    first = f"  {_MARKS[finding.verdict]:<5} {finding.check:<{wide}}  "
    indent = " " * len(first)
    if width is not None and width < len(first) + _LEAST:
        yield first.rstrip()
        first = indent = " " * len("  ok    ")
    yield from wrapped(finding.text, first, indent)
    if finding.remedy:
        yield from wrapped(finding.remedy, f"{indent}→ ", f"{indent}  ")
    # Never wrapped: they are to be pasted.
    yield from (f"{indent}  {statement};" for statement in finding.statements)


def _summary(findings: tuple[Finding, ...]) -> str:
    counts = Counter(each.verdict for each in findings)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


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
    return [
        {
            "check": each.check,
            "group": group_of(each.check),
            "verdict": each.verdict.value,
            "text": each.text,
            "remedy": each.remedy,
            "statements": list(each.statements),
        }
        for each in findings
    ]
