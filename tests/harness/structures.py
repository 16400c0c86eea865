"""What a server's databases look like, as facts: read from information_schema, to be held against a recording or another server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql.err

from tests.harness.comparing import STATE_SCHEMA
from tests.harness.servers import DatabaseServer, quoted

NOT_READ = {
    "auto_increment counter": "how far a counter is depends on how rows came, and the source's own cache decides it there",
    "definer of a view": "it is the account that made the view, and accounts are not replicated",
    "database before a view's column at TiDB": "TiDB keeps a SELECT as it came, and the new architecture writes it in full",
}
"""What is no part of a structure here, and why."""

_COLUMNS = {
    "type": "column_type",
    "nullable": "is_nullable",
    "key": "column_key",
    "extra": "extra",
    "default": "column_default",
    "expression": "generation_expression",
    "charset": "character_set_name",
    "collation": "collation_name",
    "comment": "column_comment",
}
_QUALIFIED = re.compile(r"`[^`]+`\.(`[^`]+`\.`[^`]+`)")
"""A column with its table and database."""
_VISIBLE = {"mariadb": "IF(ignored = 'YES', 'NO', 'YES')", "mysql": "is_visible", "tidb": "is_visible"}
_EXPRESSION = {"mariadb": "NULL", "mysql": "expression", "tidb": "expression"}
_CHECKS = {
    "mariadb": "SELECT constraint_schema, table_name, constraint_name, check_clause FROM information_schema.check_constraints",
    "mysql": "SELECT t.constraint_schema, t.table_name, t.constraint_name, CONCAT(c.check_clause, ' enforced ', t.enforced)"
    " FROM information_schema.check_constraints c JOIN information_schema.table_constraints t"
    " ON t.constraint_schema = c.constraint_schema AND t.constraint_name = c.constraint_name",
    "tidb": "SELECT constraint_schema, table_name, constraint_name, check_clause"
    " FROM information_schema.tidb_check_constraints",
}
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_DEFINER = re.compile(r" DEFINER=\S+")


@dataclass(frozen=True, slots=True, order=True)
class Fact:
    """What is told: one property of a part of a table, a view or a database."""

    table: str
    """``schema.table``, or ``schema.`` for the database itself."""
    part: str
    """Like ``column a``, ``index i``, ``partition p0``; empty for the table itself."""
    what: str
    """The property."""

    def __str__(self) -> str:
        """Like ``shop.orders: column note: default``."""
        return ": ".join(filter(None, (self.table, self.part, self.what)))


Structure = dict[Fact, str]
"""Fact → what it is on this server."""


def structure_of(server: DatabaseServer, state_schema: str = STATE_SCHEMA) -> Structure:
    """Everything that the server tells about the databases that it did not make itself, but for `state_schema`."""
    schemas = [name for name in server.databases() if name.casefold() != state_schema.casefold()]
    facts: Structure = {}
    with server.connect(use_unicode=False) as connection, connection.cursor() as cursor:

        def rows(sql: str) -> list[tuple[str, ...]]:
            cursor.execute(sql)
            return [tuple(map(_text, row)) for row in cursor.fetchall()]

        for read in (_databases, _tables, _columns, _indexes, _partitions, _checks, _foreign_keys, _views, _only_tidb):
            facts |= {fact: value for fact, value in read(rows, server.kind) if _schema(fact.table, schemas)}
        for name in sorted({fact.table for fact in facts if not fact.table.endswith(".")}):
            schema = _schema(name, schemas)
            table = name.removeprefix(f"{schema}.")
            facts[Fact(name, "", "definition")] = _definition(rows, schema, table, server.kind)
            if server.kind == "tidb" and facts[Fact(name, "", "kind")] == "BASE TABLE":
                facts |= _shown_types(rows, schema, table)
    return facts


def _schema(name: str, schemas: Sequence[str]) -> str:
    """Which of the databases a name is in, empty if in none; both parts of a name may have points in them."""
    return max((schema for schema in schemas if name.startswith(f"{schema}.")), key=len, default="")


def tables_of(structure: Structure) -> frozenset[str]:
    """``schema.table`` of each table and view, ``schema.`` of each database."""
    return frozenset(fact.table for fact in structure)


Rows = Any
"""Statement → rows of texts."""
Facts = Iterator[tuple[Fact, str]]


def _text(value: Any) -> str:
    """NULL as a word of its own; bytes that are no text as escapes."""
    if value is None:
        return "NULL"
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _databases(rows: Rows, _kind: str) -> Facts:
    for schema, charset, collation in rows(
        "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata"
    ):
        yield Fact(f"{schema}.", "", "charset"), charset
        yield Fact(f"{schema}.", "", "collation"), collation


def _tables(rows: Rows, _kind: str) -> Facts:
    for schema, table, kind, collation, comment, engine in rows(
        "SELECT table_schema, table_name, table_type, table_collation, table_comment, engine FROM information_schema.tables"
    ):
        name = f"{schema}.{table}"
        yield Fact(name, "", "kind"), kind
        if kind == "BASE TABLE":
            yield Fact(name, "", "collation"), collation
            yield Fact(name, "", "comment"), comment
            yield Fact(name, "", "engine"), engine


def _columns(rows: Rows, kind: str) -> Facts:
    order: dict[str, list[str]] = {}
    for schema, table, column, *values in rows(
        f"SELECT table_schema, table_name, column_name, {', '.join(_COLUMNS.values())}"
        " FROM information_schema.columns ORDER BY table_schema, table_name, ordinal_position"
    ):
        name = f"{schema}.{table}"
        order.setdefault(name, []).append(column)
        for what, value in zip(_COLUMNS, values, strict=True):
            fact = Fact(name, f"column {column}", what)
            if what == "expression" and value == "NULL":  # on some servers; an empty text on others
                yield fact, ""
            elif kind == "mysql" and what == "default" and values[0].startswith("timestamp") and value[:1].isdigit():
                yield fact, "in the zone of the session that made it; see the definition"
            else:
                yield fact, value
    for name, columns in order.items():
        yield Fact(name, "", "columns"), ", ".join(columns)


def _indexes(rows: Rows, kind: str) -> Facts:
    parts: dict[tuple[str, str], list[str]] = {}
    for schema, table, index, unique, visible, method, comment, column, prefix, expression, direction in rows(
        f"SELECT table_schema, table_name, index_name, IF(non_unique = 0, 'YES', 'NO'), {_VISIBLE[kind]}, index_type,"
        f" index_comment, column_name, sub_part, {_EXPRESSION[kind]}, collation FROM information_schema.statistics"
        " ORDER BY table_schema, table_name, index_name, seq_in_index"
    ):
        name, part = f"{schema}.{table}", f"index {index}"
        for what, value in (("unique", unique), ("visible", visible), ("method", method), ("comment", comment)):
            yield Fact(name, part, what), value
        over = column if expression == "NULL" else f"({expression})"
        over += "" if prefix == "NULL" else f"({prefix})"
        parts.setdefault((name, part), []).append(over + (" DESC" if direction == "D" else ""))
    for (name, part), columns in parts.items():
        yield Fact(name, part, "columns"), ", ".join(columns)


def _partitions(rows: Rows, _kind: str) -> Facts:
    order: dict[str, list[str]] = {}
    for schema, table, partition, sub, method, expression, submethod, subexpression, values, comment in rows(
        "SELECT table_schema, table_name, partition_name, subpartition_name, partition_method, partition_expression,"
        " subpartition_method, subpartition_expression, partition_description, partition_comment"
        " FROM information_schema.partitions WHERE partition_name IS NOT NULL"
        " ORDER BY table_schema, table_name, partition_ordinal_position, subpartition_ordinal_position"
    ):
        name, part = f"{schema}.{table}", f"partition {partition}" + ("" if sub == "NULL" else f" {sub}")
        order.setdefault(name, []).append(part)
        yield Fact(name, "", "partition method"), f"{method} {submethod}"
        yield Fact(name, "", "partition expression"), f"{expression} {subexpression}"
        yield Fact(name, part, "values"), values
        yield Fact(name, part, "comment"), comment
    for name, partitions in order.items():
        yield Fact(name, "", "partitions"), ", ".join(partitions)


def _checks(rows: Rows, kind: str) -> Facts:
    for schema, table, constraint, clause in rows(_CHECKS[kind]):
        yield Fact(f"{schema}.{table}", f"check {constraint}", "clause"), clause


def _foreign_keys(rows: Rows, _kind: str) -> Facts:
    columns: dict[tuple[str, str], list[str]] = {}
    for schema, table, constraint, column, parent_schema, parent, parent_column in rows(
        "SELECT table_schema, table_name, constraint_name, column_name, referenced_table_schema, referenced_table_name,"
        " referenced_column_name FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL"
        " ORDER BY table_schema, table_name, constraint_name, ordinal_position"
    ):
        pairs = columns.setdefault((f"{schema}.{table}", f"foreign key {constraint}"), [])
        pairs.append(f"{column} to {parent_schema}.{parent}.{parent_column}")
    for (name, part), pairs in columns.items():
        yield Fact(name, part, "columns"), ", ".join(pairs)
    for schema, table, constraint, update, delete in rows(
        "SELECT constraint_schema, table_name, constraint_name, update_rule, delete_rule"
        " FROM information_schema.referential_constraints"
    ):
        yield Fact(f"{schema}.{table}", f"foreign key {constraint}", "rules"), f"update {update}, delete {delete}"


def _views(rows: Rows, kind: str) -> Facts:
    for schema, view, text, option, security, collation in rows(
        "SELECT table_schema, table_name, view_definition, check_option, security_type, collation_connection"
        " FROM information_schema.views"
    ):
        name = f"{schema}.{view}"
        yield Fact(name, "", "select"), _QUALIFIED.sub(r"\1", text) if kind == "tidb" else text
        yield Fact(name, "", "check option"), option
        yield Fact(name, "", "security"), security
        yield Fact(name, "", "collation of strings"), collation


def _only_tidb(rows: Rows, kind: str) -> Facts:
    if kind != "tidb":
        return
    for schema, table, sharding in rows(
        "SELECT table_schema, table_name, tidb_row_id_sharding_info FROM information_schema.tables"
    ):
        yield Fact(f"{schema}.{table}", "", "sharding"), sharding
    for schema, table, index, clustered, is_global in rows(
        "SELECT table_schema, table_name, key_name, clustered, is_global FROM information_schema.tidb_indexes"
    ):
        yield Fact(f"{schema}.{table}", f"index {index}", "clustered"), clustered
        yield Fact(f"{schema}.{table}", f"index {index}", "global"), is_global


def _shown_types(rows: Rows, schema: str, table: str) -> Structure:
    """TiDB's information_schema leaves ZEROFILL out of a type, SHOW COLUMNS does not."""
    shown = rows(f"SHOW COLUMNS FROM {quoted(schema)}.{quoted(table)}")
    return {Fact(f"{schema}.{table}", f"column {column}", "type"): kind for column, kind, *_ in shown}


def _definition(rows: Rows, schema: str, table: str, kind: str) -> str:
    """What SHOW CREATE says, without what is no part of a structure; it holds whatever the other facts do not."""
    try:
        found: Sequence[Sequence[str]] = rows(f"SHOW CREATE TABLE {quoted(schema)}.{quoted(table)}")
    except pymysql.err.MySQLError as error:  # a view over what is gone
        return f"error {error.args[0]}"
    text = _DEFINER.sub("", _COUNTER.sub("", found[0][1]))
    return _QUALIFIED.sub(r"\1", text) if kind == "tidb" else text
