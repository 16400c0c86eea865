"""The documents that a hook gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from storage_consumer.log_lines import tso_time, utc_time
from storage_consumer.monitoring.status import given_commands
from storage_consumer.redaction import redact

MOST_TABLES = 50
"""Tables that a document lists; the others are counted."""
_LONGEST_ERROR = 1000
"""Characters of an error."""
_PREFIX = "STORAGE_CONSUMER_ALERT_"
_VARIABLES = (
    *("event", "table", "count", "error", "checkpoint", "next_step", "text"),
    *("host", "upstream", "downstream", "state_schema"),
)
_NAMED = re.compile(r"(?<=`)storage-consumer [a-z][^`]*(?=`)")
"""A command that an error only names, without all that it takes to be pasted."""
_SENTENCE = re.compile(r"(?<=[.;]) +(?=\S)")

EventName = Literal["table_halted", "still_halted", "table_resumed", "row_quarantined", "took_over", "failed", "test"]
Document = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which program speaks; the same in each of its documents. Without secrets."""

    version: str
    host: str
    pid: int
    upstream: str
    downstream: str
    state_schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNote:
    """A table that halted, or goes on."""

    table: str
    """``schema.table``."""
    error: str = ""
    """Why it is halted; empty for one that goes on."""
    checkpoint: int = 0
    """Commit-ts up to which it is applied, inclusive; 0 where that is not known."""


def about_tables(
    event: EventName, tables: Sequence[TableNote], halted: int, about: About, now: float
) -> dict[str, object]:
    """Return a document about tables. `halted`: how many are halted now, in all; `now`: seconds since 1970."""
    first = tables[0]
    described = {"text": f"{_who(about)}: {_sentence(event, tables, halted)}", **_described(first)}
    listed = [_described(table) for table in tables[:MOST_TABLES]]
    return {**_head(event, about, now), **described, "count": len(tables), "halted": halted, "tables": listed}


def about_program(
    event: EventName, text: str, about: About, now: float, fields: Mapping[str, object]
) -> dict[str, object]:
    """Return a document about the program itself, with the fields of what happened."""
    return {**_head(event, about, now), "text": f"{_who(about)}: {text}", **fields}


def next_step(error: str) -> tuple[str, tuple[str, ...]]:
    """Return what an error says to do next, from the sentence of its first command on, and its commands.

    These are the ones to be pasted; where there are none, those that it names.
    """
    whole, named = given_commands(error), tuple(_NAMED.findall(error))
    if not whole and not named:
        return "", ()
    first = min(error.find(command) for command in (*whole, *named))
    begins = [match.end() for match in _SENTENCE.finditer(error) if match.end() <= first]
    return error[begins[-1] if begins else 0 :], whole or named


def variables(document: Document) -> dict[str, str]:
    """Return a document's main fields as environment variables of a command."""
    return {f"{_PREFIX}{name.upper()}": str(document.get(name, "")) for name in _VARIABLES}


def _head(event: EventName, about: About, now: float) -> dict[str, object]:
    return {
        "event": event,
        "time": utc_time(now),
        "host": about.host,
        "pid": about.pid,
        "version": about.version,
        "upstream": about.upstream,
        "downstream": about.downstream,
        "state_schema": about.state_schema,
    }


def _who(about: About) -> str:
    return f"storage-consumer on {about.host}, {about.upstream} to {about.downstream}"


def _described(table: TableNote) -> dict[str, object]:
    step, commands = next_step(table.error)
    described: dict[str, object] = {"table": table.table}
    if table.error:
        described |= {"error": cut(table.error), "next_step": step, "commands": list(commands)}
    if table.checkpoint:
        described |= {"checkpoint": table.checkpoint, "checkpoint_time": tso_time(table.checkpoint)}
    return described


def cut(error: str) -> str:
    """Return an error at a length that fits a message, secrets blanked: half of one would not be recognized later."""
    error = redact(error)
    return error if len(error) <= _LONGEST_ERROR else f"{error[: _LONGEST_ERROR - 1]}…"


def _sentence(event: EventName, tables: Sequence[TableNote], halted: int) -> str:
    first, several = tables[0], len(tables) > 1
    if event == "table_resumed":
        named = f"{len(tables):,} tables, {first.table} among them, go on" if several else f"{first.table} goes on"
        return f"{named}; {f'{halted:,} still halted' if halted else 'no table is halted any more'}"
    if event == "row_quarantined":
        return f"{first.table} is not equal to the source any more: {cut(first.error)}"
    verb = "still halted" if event == "still_halted" else "halted"
    named = f"{len(tables):,} tables {verb}, the first is {first.table}" if several else f"{first.table} {verb}"
    return f"{named}: {cut(first.error)}"
