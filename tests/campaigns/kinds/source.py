"""What TiDB itself makes of a story, which is what every other server must be brought to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.campaigns.kinds.playing import wrong_rows
from tests.campaigns.kinds.story import Ddl, Kind, Rows
from tests.harness.servers import DatabaseServer, quoted
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
