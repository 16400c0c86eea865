"""The commands that make a target's table equal to the source again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from storage_consumer.model import TableName
from storage_consumer.plan.table_words import copy_commands, table_flag
from storage_consumer.verifying.result import TableResult

NOT_AT_SOURCE = "the source does not have the table"
"""What is said of the structure of a table that only the target has."""


def heal_command(result: TableResult, reaching: Sequence[str]) -> str:
    """Return what to do about a table that differs, as lines for a shell; empty if nothing is to be done.

    `reaching`: the flags that lead to the target. What a person has to decide or to do stands in comments.
    """
    if not result.different_rows and not result.structure:
        return ""
    return "\n".join(_lines(result, shlex.join(reaching)))


def renamed(result: TableResult, new: TableName) -> TableResult:
    """Return what was found of a table, now that it has another name."""
    old, flag = table_flag(result.table), table_flag(new)
    return replace(result, table=new, target=new, heal=result.heal.replace(f" {old} ", f" {flag} "))


def _lines(result: TableResult, reach: str) -> Iterator[str]:
    flag = table_flag(result.table)
    if NOT_AT_SOURCE in result.structure:
        yield "# Is this the right source? If it is, drop the table in the target, and leave it out:"
        yield f"storage-consumer table skip {flag} {reach}".rstrip()
        return
    load, done = copy_commands(result.table)
    yield f"storage-consumer table pause {flag} {reach}".rstrip()
    yield "# When it is paused, export the table to URI, and load it:"
    if result.structure:
        yield "# (what of the structure differs: first change it in the target as the source has it, or drop the target's table)"
    yield f"{load} {reach}".rstrip()
    yield f"# Or have it exported, to the empty folder URI: {load} --source SOURCE --upstream-uri BUCKET {reach}".rstrip()
    yield f"# Or, after a copy that you made yourself, with its TSO: {done} {reach}".rstrip()
