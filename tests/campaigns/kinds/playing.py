"""Plays all stories on a server in one round of the program, and says what became of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql.err

from storage_consumer import Consumer
from storage_consumer.summary import RoundSummary
from tests.campaigns.kinds import (
    changed_columns,
    columns,
    databases_and_tables,
    foreign_keys,
    indexes,
    partitions,
    tidb_only,
    views_and_constraints,
)
from tests.campaigns.kinds.shape import shapes
from tests.campaigns.kinds.story import EXECUTED, NOTHING, Ddl, Kind
from tests.harness.servers import DatabaseServer, quoted
from tests.harness.small_bucket import CONFIG, SmallBucket, ts

GROUPS: Mapping[str, Sequence[Kind]] = {
    "databases and tables": databases_and_tables.KINDS,
    "views and constraints": views_and_constraints.KINDS,
    "columns": [*columns.KINDS, *changed_columns.KINDS],
    "indexes and keys": indexes.KINDS,
    "foreign keys": foreign_keys.KINDS,
    "partitions": partitions.KINDS,
    "TiDB's own": tidb_only.KINDS,
}
ALL = tuple(kind for kinds in GROUPS.values() for kind in kinds)
_END = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a server made of one story."""

    outcome: str
    """``executed``, ``rewritten: how``, ``skipped: why``, ``halted: message``; several joined by a dot."""
    problems: tuple[str, ...]
    """How it differs from what must be; empty if it does not."""


def play(server: DatabaseServer, kinds: Sequence[Kind], folder: Path) -> dict[str, Played]:
    """Write the trees of all stories into one bucket, run one round, and judge each; name → what was found."""
    server.drop_all()
    bucket = SmallBucket(root=folder / server.kind)
    bucket.root.mkdir(parents=True)
    for kind in kinds:
        kind.write(bucket)
    bucket.metadata(ts(_END))
    with Consumer(
        upstream_uri=bucket.uri, downstream_uri=server.uri, config=CONFIG, no_copy=True, tz="UTC"
    ) as consumer:
        summary = consumer.run_once()
    structure = shapes(server)
    journal = _journal(server)
    found = {}
    for kind in kinds:
        outcome = " · ".join(dict.fromkeys(_outcomes(kind, journal, summary)))
        shape = structure.get(kind.schema, frozenset())
        found[kind.name] = Played(outcome=outcome, problems=tuple(_problems(kind, server, outcome, shape)))
    return found


@dataclass(frozen=True, slots=True)
class _Entry:
    state: str
    query: str
    statement: str
    note: str


def _journal(server: DatabaseServer) -> dict[tuple[str, int], _Entry]:
    rows = server.query(
        "SELECT table_dir, version, state, query, statement, note FROM storage_consumer.ddl_journal ORDER BY table_dir"
    )
    return {(str(place), int(version)): _Entry(*map(str, rest)) for place, version, *rest in rows}


def _outcomes(kind: Kind, journal: Mapping[tuple[str, int], _Entry], summary: RoundSummary) -> Iterator[str]:
    halted = {table.table: table.error for table in (*summary.halted, *summary.waiting)}
    entries = []
    for tick, item in kind.timed():
        if not isinstance(item, Ddl):
            continue
        place = "/".join(filter(None, (kind.filled(item.database), item.table)))
        entry = journal.get((place, ts(tick)))
        entries.append(entry if entry is None or entry.state in ("done", "skipped") else None)
        if entry is None or entry.state not in ("done", "skipped"):
            error = halted.get(place.replace("/", ".")) or next(
                (e for name, e in halted.items() if name.partition(".")[0] == kind.filled(item.database)), ""
            )
            yield f"halted: {error}" if error or item.query else NOTHING
        elif item.setup:
            continue
        elif entry.state == "skipped":
            yield f"skipped: {entry.note}"
        elif entry.statement.strip("; ") == entry.query.strip("; "):
            yield EXECUTED + (f" ({entry.note})" if entry.note else "")
        else:
            yield f"rewritten: {entry.note}"
    if all(entry is not None for entry in entries):
        yield from (f"halted: {error}" for name, error in halted.items() if name.partition(".")[0] == kind.schema)


def _problems(kind: Kind, server: DatabaseServer, outcome: str, shape: frozenset[str]) -> Iterator[str]:
    expected = kind.outcome(server.kind)
    fits = re.match(expected, outcome) if expected.startswith("halted") else _starts_alike(outcome, expected)
    if not fits:
        yield f"outcome is {outcome!r}, not {expected!r}"
    yield from wrong_rows(kind, server, kind.rows_at_end(server.kind))
    if outcome.startswith("halted"):
        return
    for line in (_of_server(text, server.kind) for text in kind.has):
        if line and line not in shape:
            near = sorted(one for one in shape if one.split(" ")[0] == line.split(" ")[0])
            yield f"structure lacks {line!r} and has {near}"
    yield from (f"structure has {line!r}" for line in kind.lacks if line in shape)


def wrong_rows(kind: Kind, server: DatabaseServer, ends: Mapping[str, Sequence[tuple[Any, ...]]]) -> Iterator[str]:
    """How tables differ from the rows that they must hold."""
    for table, rows in ends.items():
        schema, _, name = table.rpartition(".")
        there = _rows(server, kind.schema + schema, name)
        if there != sorted(rows, key=_order):
            yield f"rows of {table}: {there}, not {list(rows)}"


def _starts_alike(outcome: str, expected: str) -> bool:
    parts, wanted = outcome.split(" · "), expected.split(" · ")
    return len(parts) == len(wanted) and all(
        part == want if want == EXECUTED else part.startswith(want) for part, want in zip(parts, wanted, strict=True)
    )


def _of_server(text: str, server: str) -> str:
    """``mysql? line`` is for one server; empty for the others."""
    marked = re.match(r"(\w+)\? (.*)", text)
    return text if marked is None else marked[2] if marked[1] == server else ""


def _rows(server: DatabaseServer, schema: str, table: str) -> list[tuple[Any, ...]] | str:
    """All rows as texts, or the server's error."""
    try:
        found = server.query(f"SELECT * FROM {quoted(schema)}.{quoted(table)}")
    except pymysql.err.MySQLError as error:
        return str(error)
    return sorted((tuple(map(_text, one)) for one in found), key=_order)


def _order(one: tuple[Any, ...]) -> tuple[tuple[bool, str], ...]:
    return tuple((value is None, str(value)) for value in one)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return json.dumps(json.loads(text)) if text[:1] in ("[", "{") else text
