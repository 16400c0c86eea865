"""The structure of databases as lines that read alike on every server, from information_schema."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tests.harness.servers import DatabaseServer

Shape = Mapping[str, frozenset[str]]
"""Database → its lines."""
_WIDTH = re.compile(r"\b((?:small|medium|big)?int|year)\(\d+\)")
_WIDE_TINY = re.compile(r"\btinyint\((?!1\))\d+\)")


def shapes(server: DatabaseServer) -> Shape:
    """What every database of the server holds."""
    found: dict[str, set[str]] = defaultdict(set)
    for reader in (_tables, _columns, _indexes, _partitions, _constraints):
        for schema, line in reader(server):
            found[_text(schema)].add(line)
    return {schema: frozenset(lines) for schema, lines in found.items()}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _tables(server: DatabaseServer) -> list[tuple[str, str]]:
    lines = []
    for schema, collation in server.query(
        "SELECT schema_name, default_collation_name FROM information_schema.schemata"
    ):
        lines.append((schema, f"database collation {collation}"))
    for schema, table, kind, collation, comment in server.query(
        "SELECT table_schema, table_name, table_type, table_collation, table_comment FROM information_schema.tables"
    ):
        lines.append((schema, f"{'view' if kind == 'VIEW' else 'table'} {table}"))
        lines.append((schema, f"{table} collation {collation}"))
        lines += [(schema, f"{table} comment {comment}")] if comment else []
    return lines


def _columns(server: DatabaseServer) -> list[tuple[str, str]]:
    lines = []
    for schema, *names, kind, null, default, place, collation, extra, comment in server.query(
        "SELECT table_schema, table_name, column_name, column_type, is_nullable, column_default, ordinal_position, "
        "collation_name, extra, column_comment FROM information_schema.columns "
        "WHERE table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
    ):
        name = ".".join(names)
        short = _WIDE_TINY.sub("tinyint", _WIDTH.sub(r"\1", _text(kind).lower()))
        found = [f"{name} {short}", f"{name} at {place}", f"{name} {'null' if null == 'YES' else 'not null'}"]
        found += [f"{name} collation {collation}"] if collation else []
        found += [f"{name} default {_default(default)}"] if default is not None and _text(default) != "NULL" else []
        found += [f"{name} {mark}" for mark in _marks(_text(extra).lower())]
        found += [f"{name} comment {_text(comment)}"] if comment else []
        lines += [(schema, line) for line in found]
    return lines


def _default(default: Any) -> str:
    """As typed, without quotes, in lower case where it is a function."""
    text = _text(default)
    text = re.sub(r"^(?:_utf8mb4)?\\?'(.*?)\\?'$", r"\1", text)
    return re.sub(r"(?i)^(current_timestamp)(?:\(\))?(\(\d\))?$", lambda m: m[1].lower() + (m[2] or ""), text)


def _marks(extra: str) -> list[str]:
    marks = {
        "auto_increment": "auto_increment",
        "virtual": "virtual",
        "stored": "stored",
        "persistent": "stored",
        "on update": "on update",
    }
    return sorted({mark for word, mark in marks.items() if word in extra})


def _indexes(server: DatabaseServer) -> list[tuple[str, str]]:
    visible, expression = {
        "mariadb": ("IF(ignored = 'YES', 'NO', 'YES')", "NULL"),
        "mysql": ("is_visible", "expression"),
        "tidb": ("is_visible", "expression"),
    }[server.kind]
    parts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    unique: set[tuple[str, str, str]] = set()
    hidden: set[tuple[str, str, str]] = set()
    for schema, table, index, name, prefix, order, non_unique, shown, text in server.query(
        f"SELECT table_schema, table_name, index_name, column_name, sub_part, collation, non_unique, {visible}, {expression} "
        "FROM information_schema.statistics ORDER BY table_schema, table_name, index_name, seq_in_index"
    ):
        key = (_text(schema), _text(table), _text(index))
        part = "<expression>" if text is not None and _text(text) not in ("", "NULL") else _text(name)
        parts[key].append(part + (f"({prefix})" if prefix else "") + (" desc" if order == "D" else ""))
        unique |= set() if int(non_unique) else {key}
        hidden |= {key} if _text(shown) == "NO" else set()
    lines = []
    for (schema, table, index), columns in parts.items():
        key = (schema, table, index)
        named = "primary key" if index == "PRIMARY" else f"{'unique' if key in unique else 'index'} {index}"
        lines.append((schema, f"{table} {named}({','.join(columns)})"))
        lines += [(schema, f"{table} {index} invisible")] if key in hidden else []
    return lines


def _partitions(server: DatabaseServer) -> list[tuple[str, str]]:
    lines = []
    for schema, table, name, method in server.query(
        "SELECT table_schema, table_name, partition_name, partition_method FROM information_schema.partitions "
        "WHERE partition_name IS NOT NULL"
    ):
        lines += [(schema, f"{table} partition {name}"), (schema, f"{table} partitioned by {method}")]
    return lines


def _constraints(server: DatabaseServer) -> list[tuple[str, str]]:
    wanted = "constraint_type IN ('FOREIGN KEY', 'CHECK')"
    return [
        (schema, f"{table} {_text(kind).lower()} {_text(name).lower()}")
        for schema, table, name, kind in server.query(
            "SELECT table_schema, table_name, constraint_name, constraint_type "
            f"FROM information_schema.table_constraints WHERE {wanted}"
        )
    ]
