"""Every kind of statement on every server: rows, structure and journal are as they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.kinds.playing import ALL, play, wrong_rows
from tests.campaigns.kinds.story import Ddl, Kind, Rows
from tests.harness.servers import DatabaseServer, quoted, tidb_program
from tests.harness.small_bucket import ts

_SESSION = "SET SESSION sql_mode = 'ONLY_FULL_GROUP_BY,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'"
"""A lossy MODIFY needs such a mode."""


def at_the_source(server: DatabaseServer, kind: Kind) -> tuple[str, ...]:
    """Run a story's statements and rows on a TiDB server; how the rows then differ from the story's end."""
    columns: dict[tuple[str, str], Sequence[str]] = {}
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(_SESSION)
        for tick, item in kind.timed():
            place = (kind.filled(item.database), item.table)
            if isinstance(item, Ddl):
                columns[place] = item.columns or columns.get(place, ())
            cursor.execute(f"SET SESSION timestamp = {(ts(tick) >> 18) / 1000:.3f}")
            cursor.execute(f"USE {quoted(place[0] if item.table else 'mysql')}")
            for statement in _statements(kind, item, columns[place]):
                cursor.execute(statement)
    return tuple(wrong_rows(kind, server, kind.ends))


def _statements(kind: Kind, item: Any, columns: Sequence[str]) -> list[str]:
    """The item as SQL; of rows, what is not generated."""
    if isinstance(item, Ddl):
        return [kind.filled(item.query)] if item.query else []
    assert isinstance(item, Rows)
    names = [one.partition(" ")[0] for one in columns if "~" not in one.partition(" ")[0]]
    statements = []
    for line in item.lines:
        values = line.replace(r"\N", "NULL").split(",")
        pairs = [(n.rstrip("!"), v) for n, v in zip(names, values, strict=True) if not n.endswith("=")]
        if item.operation == "D":
            same = " AND ".join(f"{quoted(name)} <=> {value}" for name, value in pairs)
            statements.append(f"DELETE FROM {quoted(item.table)} WHERE {same} LIMIT 1")
            continue
        written = ", ".join(quoted(name) for name, _ in pairs)
        statements.append(f"REPLACE INTO {quoted(item.table)} ({written}) VALUES ({', '.join(v for _, v in pairs)})")
    return statements


pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_every_kind_of_statement(server: DatabaseServer, tmp_path: Path) -> None:
    """Each story ends with its rows and its structure, and the journal says how (D3, D10, D18, D20, D21)."""
    wrong: Mapping[str, tuple[str, ...]] = {
        name: played.problems for name, played in play(server, ALL, tmp_path).items() if played.problems
    }
    assert wrong == {}


def test_names_of_stories_are_their_databases() -> None:
    """No two stories meet in one database."""
    assert len({kind.schema for kind in ALL}) == len(ALL)


if tidb_program():

    def test_the_source_agrees(tidb: DatabaseServer) -> None:
        """TiDB itself takes the stories' statements as they stand, and ends with the rows that the stories say."""
        wrong = {story.name: found for story in ALL if story.to_tidb and (found := at_the_source(tidb, story))}
        assert wrong == {}
