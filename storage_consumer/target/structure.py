"""The target's databases, tables, columns, keys and views, from information_schema and SHOW CREATE.

It also has what a table's keys were when our last statement left it, as noted in the state schema,
and who holds locks on a table.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Table, delete, select

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import (
    ConfigError,
    DdlFailed,
    StorageConsumerError,
)
from storage_consumer.model import TableName, folded_name
from storage_consumer.plan.steps import key_of
from storage_consumer.ports import ServerInfo
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.sql.tokens import Token, has_words, qualified, quote
from storage_consumer.target.connection import Connection, connect, translating
from storage_consumer.target.existing_names import (
    ForeignKey,
    PartNames,
    Query,
    changes_defaults,
    closest,
    existing,
    is_far,
    takes_rows_of_partitions,
    text_of,
    to_integers,
)
from storage_consumer.target.mysql_errors import (
    DRIVER_FAULTS,
    described,
    is_denied,
    number_of,
    translated,
)
from storage_consumer.target.rights import all_rights, remedy, state_remedy
from storage_consumer.target.session_settings import fetched, kind_of
from storage_consumer.target.state_tables import as_text, put, state_tables

_IDLE = 60.0
"""Seconds."""


class TargetSession:
    """Runs the driver's queries on one connection, opened at first use and after a loss."""

    def __init__(self, downstream: Downstream, password: str) -> None:
        """Take the settings; nothing connects yet."""
        self._downstream = downstream
        self._password = password
        self._used = 0.0
        self.current: Connection | None = None
        """The connection of the latest query; None after `close`."""

    def close(self) -> None:
        """Close the connection; the next query opens another one."""
        if self.current is not None and self.current.open:
            self.current.close()
        self.current = None

    def check(self) -> None:
        """Connect once; raise `ConfigError` for a refused login, else `TargetUnavailable`."""
        self.live()
        self.close()

    def live(self) -> Connection:
        """Return the connection. Replace one that was idle for long if the server has ended it."""
        # Only after a pause, since a ping costs a round trip before each query otherwise.
        if time.monotonic() - self._used > _IDLE and self.current is not None:
            try:
                self.current.ping(reconnect=False)
            except DRIVER_FAULTS:
                self.close()
        if self.current is None or not self.current.open:
            # With the settings for DDL: what the driver reads and what its statements do happen in
            # the same kind of session.
            self.current = connect(self._downstream, self._password, ddl=True)
        self._used = time.monotonic()
        return self.current

    def rows(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        try:
            with translating("reading the target's structure"):
                return fetched(self.live(), sql, arguments)
        except Exception as fault:
            self.close()
            # of tables it reads only the state's own
            if fault.__cause__ is not None and is_denied(fault.__cause__):
                message = state_remedy(fault.__cause__, self.rows, self._downstream.state_schema)
                raise ConfigError(message) from fault
            raise

    def server_info(self) -> ServerInfo:
        """Return what the server is. Raise `ConfigError` or `TargetUnavailable`."""
        version, packet, local = self.rows(
            "SELECT VERSION(), @@max_allowed_packet, @@local_infile"
        )[0]
        text = str(version)
        return ServerInfo(
            server_type=kind_of(text),
            version=text,
            max_packet=int(packet),
            load_data=str(local).upper() in ("1", "ON"),
        )

    @cached_property
    def is_tidb(self) -> bool:
        """Whether the server is a TiDB; it is asked once."""
        return self.server_info().server_type == "tidb"


_KNOWS_EXPRESSIONS = "with keys over expressions"
"""A line of each note that says all of such keys: notes of earlier builds lack them."""


def keys_of(table: TargetTable) -> list[str]:
    """Return the unique keys and their collations, one text each, sorted."""
    lines = [_KNOWS_EXPRESSIONS, *_over_expressions(table)]
    named = {folded_name(column) for key in table.unique_keys for column in key.columns}
    for key in table.unique_keys:
        parts = [
            quote(folded_name(column)) + ("" if prefix is None else f"({prefix})")
            for column, prefix in zip(key.columns, key.prefixes, strict=True)
        ]
        # Sorted: in which order a key names its columns changes nothing about what is unique.
        lines.append(f"unique key over {', '.join(sorted(parts))}")
    lines += [
        f"collation {c.collation} of {c.name}"
        for c in table.columns
        if c.collation and folded_name(c.name) in named
    ]
    return sorted({_line(line) for line in lines})


def _over_expressions(table: TargetTable) -> list[str]:
    return [_line(f"unique key over {parts}") for parts in table.expression_keys]


def _line(text: str) -> str:
    """Return a text as a note holds it, one per line: a column's name may hold a line break."""
    return text.replace("\n", r"\n")


def key_drift(noted: Iterable[str], table: TargetTable) -> str:
    """Return what the table has beyond the noted keys, or ""; collations count if noted."""
    known, now = set(noted), keys_of(table)
    passed_over = set() if _KNOWS_EXPRESSIONS in known else set(_over_expressions(table))
    new_keys = [
        line for line in now if line.startswith("unique") and line not in known | passed_over
    ]
    # Only columns that were noted: a new key is reported as a whole, whatever its collations.
    before = dict(_collation(line) for line in known if line.startswith("collation"))
    collations = [(line, *_collation(line)) for line in now if line.startswith("collation")]
    other = [
        f"{line} instead of {was}"
        for line, name, now_is in collations
        if (was := before.get(name, now_is)) != now_is
    ]
    return "; ".join(new_keys + other)


def _collation(line: str) -> tuple[str, str]:
    """Return the folded name of a column and its collation, from a line of `keys_of`."""
    collation, _, name = line.removeprefix("collation ").partition(" of ")
    # A server shows the newer name once it is upgraded to MySQL 8.0.30 or MariaDB 10.6.
    return folded_name(name), collation.replace("utf8mb3_", "utf8_")


_SHOWN = 5
_TEXT = 120
"""Characters of a running statement that are shown."""
_WHO = "p.id, p.user, p.host, p.time, p.info"
_MYSQL = (
    f"SELECT {_WHO}, l.lock_type FROM performance_schema.metadata_locks l "
    "JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id "
    "JOIN information_schema.processlist p ON p.id = t.processlist_id "
    "WHERE l.lock_status = 'GRANTED' AND p.id <> CONNECTION_ID() AND (l.object_schema, l.object_name) IN ({})"
)
_MARIADB = (
    f"SELECT {_WHO}, l.lock_mode FROM information_schema.metadata_lock_info l "
    "JOIN information_schema.processlist p ON p.id = l.thread_id "
    "WHERE p.id <> CONNECTION_ID() AND (l.table_schema, l.table_name) IN ({})"
)
"""With its plug-in for that, which many servers do not load."""
_TIDB = (
    f"SELECT {_WHO}, CONCAT('a transaction since ', x.start_time) FROM information_schema.tidb_trx x "
    "JOIN information_schema.processlist p ON p.id = x.session_id "
    "JOIN information_schema.tables t ON FIND_IN_SET(t.tidb_table_id, x.related_table_ids) "
    "WHERE p.id <> CONNECTION_ID() AND (t.table_schema, t.table_name) IN ({})"
)
"""Open transactions on a table, of this TiDB server only: a whole cluster can take a minute."""
_ON_TABLES = (_MYSQL, _MARIADB, _TIDB)
"""Queries for the holders of locks on given tables; a server that does not know one refuses it."""
_OPEN = (
    f"SELECT {_WHO}, CONCAT('a transaction since ', x.trx_started) FROM information_schema.innodb_trx x "
    "JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id "
    "WHERE p.id <> CONNECTION_ID() ORDER BY x.trx_started"
)
"""Open transactions, oldest first; where the server hides locks, one of them holds them."""
_LASTING = 2
"""Seconds such a transaction must be open to be reported; its start is known to the second."""


def blockers(query: Query, names: Iterable[TableName]) -> tuple[str, ...]:
    """Return a line per connection that may lock these tables; empty if the server tells nothing.

    These are the holders if the server names them, else all connections with an open transaction,
    oldest first. What is over within two seconds, such as a transaction of this program, has kept
    nothing waiting.
    """
    # Databases are left out: locks are shown by table.
    wanted = sorted({(name.schema, name.table) for name in names if name.table})
    if not wanted:
        return ()
    pairs = ", ".join(["(%s, %s)"] * len(wanted))
    arguments = [part for pair in wanted for part in pair]
    # Servers refuse queries made for others: trying is surer than judging by version.
    for sql in _ON_TABLES:
        with suppress(StorageConsumerError):  # not this server's, or a right that we lack
            if found := query(sql.format(pairs), arguments):
                return _holders(found)
    with suppress(StorageConsumerError):  # likewise
        found = query(_OPEN, [])
        if found:
            query("SELECT SLEEP(%s)", [_LASTING])
        # Those that are still open, told by their connection, and since when.
        still = {(row[0], row[-1]) for row in query(_OPEN, [])} if found else set()
        return _holders([row for row in found if (row[0], row[-1]) in still])
    return ()


def _holders(found: list[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return the rows as text, each connection once."""
    # One connection may hold several locks; people need each connection only once.
    by_connection = {row[0]: row for row in found}
    lines = []
    for connection, user, host, seconds, running, lock in by_connection.values():
        who = f" of {text_of(user)}@{text_of(host)}" if user else ""
        # A connection without a statement still holds what its transaction took.
        doing = f"running {text_of(running)[:_TEXT]!r}" if running else "idle"
        held = f"holds {text_of(lock)} (`KILL {connection}` ends it)"
        lines.append(f"connection {connection}{who}, {doing} for {seconds} s, {held}")
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], f"and {more} more") if more > 0 else tuple(lines)


_COUNTER = re.compile(
    rb"(?m)^(\) ENGINE=\w+[^'\n]*?) (?:AUTO_INCREMENT=\d+|/\*T!\[auto_rand_base\] AUTO_RANDOM_BASE=\d+ \*/)"
)
"""A table's counters; rows and restarts change them too, so they say nothing of a statement."""
_FOREIGN_KEY = re.compile(rb",?\n  CONSTRAINT `(?:[^`]|``)*` FOREIGN KEY [^\n]*")
"""A foreign key, which any statement that it blocks may drop; fingerprints leave it out."""
_UNKNOWN_TABLE = frozenset((1146, 1049, 1051, 1300, 1059, 1103))
"""The last three: no table can have the name."""
_CHUNK = 500
_KEY_COLUMNS = (
    "SELECT constraint_name, table_schema, table_name, column_name, referenced_table_schema, referenced_table_name, "
    "referenced_column_name FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL "
    "ORDER BY constraint_schema, table_name, constraint_name, ordinal_position"
)
_OTHER_METHODS = frozenset(("KEY", "LINEAR KEY", "LINEAR HASH"))
"""Methods by which MySQL and MariaDB put rows into other partitions than TiDB does."""


_TEXTS = 7
"""Facts of a column that are texts; they come first."""


class ColumnFacts(NamedTuple):
    """A column as information_schema shows it."""

    name: str
    data_type: str
    column_type: str
    nullable: str
    extra: str
    charset: str
    collation: str
    default: Any
    """A text, bytes, or None."""
    scale: int | None
    fraction: int | None
    length: int | None
    has_expression: Any
    """Whether it is computed; not each server says so here."""

    @property
    def generated(self) -> str:
        """``VIRTUAL``, ``STORED`` or empty; DEFAULT_GENERATED marks a default expression."""
        flags = self.extra.upper()
        if "VIRTUAL" in flags:
            return "VIRTUAL"
        is_stored = "STORED" in flags or "PERSISTENT" in flags
        return (
            "STORED"
            if is_stored or (self.has_expression and "DEFAULT_GENERATED" not in flags)
            else ""
        )


class IndexPart(NamedTuple):
    """A part of an index as information_schema shows it."""

    name: str
    """Of the index."""
    column: str
    """What it is over: a column's name, or an expression."""
    prefix: int | None
    """Number of leading characters (bytes for binary types) that are indexed; None means all."""
    is_unique: bool
    method: str
    is_expression: bool


def columns_of(query: Query, names: Collection[TableName]) -> Mapping[TableName, list[ColumnFacts]]:
    """Return these tables' columns in order, by `names` in the server's spelling."""
    found = defaultdict[TableName, list[ColumnFacts]](list)
    where, arguments = _where(names)
    for schema, table, *facts in query(
        "SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, extra, "
        "character_set_name, collation_name, column_default, numeric_scale, datetime_precision, character_maximum_length, "
        f"generation_expression <> '' FROM information_schema.columns WHERE {where} "
        "ORDER BY table_schema, table_name, ordinal_position",
        arguments,
    ):
        texts = (text_of(each or "") for each in facts[:_TEXTS])
        found[_table(schema, table)].append(ColumnFacts._make((*texts, *facts[_TEXTS:])))
    return found


def index_parts_of(
    query: Query, names: Collection[TableName], *, shows_expressions: bool
) -> Mapping[TableName, dict[str, list[IndexPart]]]:
    """Return the parts of each index of these tables, in order, the primary key first."""
    found = defaultdict[TableName, dict[str, list[IndexPart]]](dict)
    # TiDB names the column of a part over an expression NULL, as a text.
    expression = "expression" if shows_expressions else "NULL"
    where, arguments = _where(names)
    for schema, table, index, column, prefix, computed, non_unique, method in query(
        f"SELECT table_schema, table_name, index_name, column_name, sub_part, {expression}, non_unique, index_type "
        f"FROM information_schema.statistics WHERE {where} "
        "ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index",
        arguments,
    ):
        part = IndexPart(
            text_of(index),
            text_of((column if computed is None else computed) or ""),
            None if prefix is None else int(prefix),
            not int(non_unique),
            text_of(method or ""),
            computed is not None,
        )
        found[_table(schema, table)].setdefault(part.name, []).append(part)
    return found


def _where(names: Collection[TableName]) -> tuple[str, list[str]]:
    """Return the condition, with arguments, for rows of information_schema about these tables."""
    pairs = ", ".join(["(%s, %s)"] * len(names))
    return f"(table_schema, table_name) IN ({pairs})", [
        part for name in names for part in (name.schema, name.table)
    ]


def _table(schema: Any, table: Any) -> TableName:
    return TableName(schema=text_of(schema), table=text_of(table))


class TargetStructure(TargetSession):
    """Reads the structure of tables and databases, whose names may differ in case.

    It also notes, in the state schema, which keys a table has when our last statement leaves it, so
    that a change by somebody else is found. Rows are written by REPLACE, which is right only under
    the source's unique keys: with one more key, or another collation in a key, rows push others
    out. A schema file names the primary key alone. So rows are written only to a table that has no
    more keys than its note.
    """

    @property
    def _notes(self) -> Table:
        return state_tables(self._downstream.state_schema).keys

    def noted(self, names: Iterable[TableName]) -> dict[TableName, list[str]]:
        """Return noted keys by folded name of table; empty if the state schema does not exist."""
        keys = {key_of(name): name.folded() for name in names}
        there = (
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        )
        notes = self._notes
        # Asked first: before the first start there is no state schema, and a refused query would
        # close the connection.
        if not keys or not self.rows(there, (notes.schema, notes.name)):
            return {}
        rows = self.rows(
            *as_text(
                select(notes.c.table_key, notes.c.unique_keys).where(notes.c.table_key.in_(keys))
            )
        )
        return {keys[str(key)]: str(lines).split("\n") for key, lines in rows if str(key) in keys}

    def forget(self, names: Iterable[TableName]) -> None:
        """Delete the notes of these tables: a statement is about to change them."""
        for name in names:
            self.rows(*as_text(delete(self._notes).where(self._notes.c.table_key == key_of(name))))

    def remember(self, names: Iterable[TableName]) -> None:
        """Note the keys that these tables have, except where the server does not show them."""
        for table in self.read(names).values():
            # A note of a table whose columns do not show would say that it has no keys at all.
            if not table.unseen:
                note = {"table_key": key_of(table.name), "unique_keys": "\n".join(keys_of(table))}
                self.rows(*as_text(put(self._notes, note)))

    def existing(self, wanted: Iterable[TableName]) -> dict[TableName, TableName]:
        """Map folded to own names of existing tables and databases (empty table name)."""
        return existing(self.rows, wanted)

    def describe(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return the existing tables by folded name, each with what others added to its keys."""
        tables = self.read(wanted)
        known = self.noted(tables)
        return {
            name: replace(table, key_drift=key_drift(known[name], table))
            if name in known
            else table
            for name, table in tables.items()
        }

    def read(self, wanted: Iterable[TableName]) -> dict[TableName, TargetTable]:
        """Return `describe` without comparing noted keys; skip databases (empty table name)."""
        names = sorted({name for name in wanted if name.table})
        # Exact names first: the server finds them at once, while a caseless search scans all.
        found = self._read_all(
            [name for name in names if not (is_far(name.schema) or is_far(name.table))]
        )
        if missing := [name for name in names if name.folded() not in found]:
            # In another case, as servers that compare names by case may have it.
            spelled = self.existing(missing)
            found |= self._read_all(sorted(spelled.values()))
            # It exists, but its columns do not show, which is another error than a missing table.
            for folded, name in spelled.items():
                if folded not in found:
                    # A privilege is missing, or it is a view and what it reads is gone.
                    views = "SELECT 1 FROM information_schema.views WHERE table_schema = %s AND table_name = %s"
                    is_view = bool(self.rows(views, [name.schema, name.table]))
                    why = "" if is_view else all_rights(self.rows, name.schema)
                    found[folded] = TargetTable(
                        name=name, columns=(), unique_keys=(), is_view=is_view, unseen=why
                    )
        return found

    def _read_all(self, names: list[TableName]) -> dict[TableName, TargetTable]:
        """Return the tables of these names, which are in the target's spelling."""
        found: dict[TableName, TargetTable] = {}
        for first in range(0, len(names), _CHUNK):
            some = names[first : first + _CHUNK]
            where, arguments = _where(some)
            query = self.rows
            columns = columns_of(query, some)
            indexes = index_parts_of(query, some, shows_expressions=self._has_expressions)
            seen = query(
                f"SELECT table_schema, table_name FROM information_schema.views WHERE {where}",
                arguments,
            )
            views = {_table(*row) for row in seen}
            for name, facts in columns.items():
                keys = [
                    _unique_key(parts)
                    for parts in indexes.get(name, {}).values()
                    if parts[0].is_unique
                ]
                found[name.folded()] = TargetTable(
                    name=name,
                    columns=tuple(map(_column, facts)),
                    unique_keys=tuple(key for key in keys if isinstance(key, UniqueKey)),
                    expression_keys=tuple(key for key in keys if isinstance(key, str)),
                    indexes=len(indexes.get(name, {})),
                    is_view=name in views,
                )
        return found

    @cached_property
    def _has_expressions(self) -> bool:
        """Whether the server knows indexes over expressions: MariaDB and MySQL 5.7 do not."""
        return bool(
            self.rows(
                "SELECT 1 FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s",
                ("information_schema", "STATISTICS", "EXPRESSION"),
            )
        )

    def has_rows(self, name: TableName) -> bool:
        """Return whether a table, by the name that the target gives it, has a row."""
        return bool(self.rows(f"SELECT 1 FROM {in_query(name)} LIMIT %s", (1,)))

    def fingerprint(self, names: Iterable[TableName]) -> str:
        """Return a hash of the structure of tables (a database if no name), or of their absence."""
        digest = hashlib.sha256()
        for name in sorted(set(names)):
            # Exact names first: other spellings are searched for only if this one is missing.
            structure = self._definition(name)
            if not structure and (real := self.existing([name]).get(name.folded(), name)) != name:
                structure = self._definition(real)
            digest.update(f"{name}=".encode() + (structure or b"absent") + b"\n")
        return digest.hexdigest()

    def _definition(self, name: TableName) -> bytes:
        """Return SHOW CREATE as bytes, which binary defaults require, or nothing."""
        # For a database `qualified` ends in the empty name of a table, .``, which is cut off.
        sql = (
            f"SHOW CREATE TABLE {qualified(name)}"
            if name.table
            else f"SHOW CREATE DATABASE {qualified(name)[:-3]}"
        )
        try:
            with self.live().undecoded() as connection, connection.cursor() as cursor:
                cursor.execute(sql)
                row = cursor.fetchone()
        except DRIVER_FAULTS as fault:
            # Its absence is part of the fingerprint: that is how a DROP shows.
            if number_of(fault) in _UNKNOWN_TABLE:
                return b""
            self.close()
            if is_denied(fault):
                message = f"reading the structure of {name}: {described(fault)}"
                raise DdlFailed(f"{message}. {remedy(fault, self.rows, [name.schema])}") from fault
            raise translated(fault, f"reading the structure of {name}") from fault
        return _FOREIGN_KEY.sub(b"", _COUNTER.sub(rb"\1", row[1])) if row else b""

    def part_names(self, name: TableName, found: Sequence[Token] = ()) -> PartNames:
        """Return the names of a table's parts that matter for a statement; empty if no table."""
        name = self.existing([name]).get(name.folded(), name)
        query, place = self.rows, (name.schema, name.table)
        columns = columns_of(query, [name]).get(name, [])
        foreign: list[tuple[str, str]] = []
        if has_words(found, "FOREIGN"):
            keys = (
                "SELECT table_name, constraint_name FROM information_schema.table_constraints "
                "WHERE constraint_schema = %s AND constraint_type = 'FOREIGN KEY'"
            )
            foreign = [(_folded(table), _folded(key)) for table, key in query(keys, (name.schema,))]
        collation = ""
        if changes_defaults(found):
            options = "SELECT table_collation FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
            collation = "".join(text_of(one) for (one,) in query(options, place))
        # Only texts can hold fractions: the servers convert all other values alike.
        texts = {column.name for column in columns if column.collation}
        own = folded_name(name.table)
        return PartNames(
            columns=frozenset(folded_name(column.name) for column in columns),
            generated=frozenset(
                folded_name(c.name)
                for c in columns
                if c.has_expression and has_words(found, "PRIMARY")
            ),
            indexes=frozenset(self._index_columns(name)),
            foreign_keys=frozenset(key for table, key in foreign if table == own),
            other_foreign_keys=frozenset(key for table, key in foreign if table != own),
            # This reads the table's rows, so it is asked only for columns that become integers.
            fractions=frozenset(
                column
                for column in to_integers(found)
                if (real := closest(column, texts)) is not None and self._has_fractions(name, real)
            ),
            collation=collation,
            scattered=takes_rows_of_partitions(found) and self._is_scattered(name),
        )

    def _index_columns(self, name: TableName) -> dict[str, list[str]]:
        """Return a table's indexes with columns, folded; `name`: in the target's spelling."""
        indexes = index_parts_of(self.rows, [name], shows_expressions=False).get(name, {})
        return {
            folded_name(index): [folded_name(part.column) for part in parts]
            for index, parts in indexes.items()
        }

    def _is_scattered(self, name: TableName) -> bool:
        """Return whether rows are in other partitions than at the source: KEY, HASH of NULL."""
        methods = (
            "SELECT DISTINCT partition_method, partition_expression FROM information_schema.partitions "
            "WHERE table_schema = %s AND table_name = %s"
        )
        for method, expression in self.rows(methods, (name.schema, name.table)):
            by = _folded(method or "").upper()
            of_null = f"SELECT 1 FROM {in_query(name)} WHERE ({text_of(expression).replace('%', '%%')}) IS NULL LIMIT %s"
            # By HASH all servers put numbers alike, but not those rows whose expression is NULL.
            if by in _OTHER_METHODS or (by == "HASH" and self.rows(of_null, (1,))):
                return True
        return False

    def _has_fractions(self, name: TableName, column: str) -> bool:
        """Return whether a text column holds a number with a fraction or an exponent."""
        found = f"SELECT 1 FROM {in_query(name)} WHERE {quote(column).replace('%', '%%')} REGEXP %s LIMIT 1"
        # Zeros after the point are no fraction.
        number = (
            r"^[[:space:]]*[-+]?([0-9]*[.][0-9]*[1-9]|([0-9]+[.]?[0-9]*|[.][0-9]+)[eE][-+]?[0-9])"
        )
        return bool(self.rows(found, (number,)))

    def foreign_keys(
        self, names: Sequence[TableName]
    ) -> tuple[list[ForeignKey], dict[str, list[str]]]:
        """Return foreign keys of and to these tables; and the first one's indexes, folded."""
        wanted = {name.folded() for name in names}
        columns: dict[tuple[TableName, str], list[tuple[str, TableName, str]]] = {}
        # All are read and chosen here: the statement's names may differ in case from the target's.
        for row in self.rows(_KEY_COLUMNS, ()):
            key, schema, table, column, other_schema, other_table, other_column = map(text_of, row)
            other = _table(other_schema, other_table).folded()
            columns.setdefault((_table(schema, table), key), []).append(
                (column, other, folded_name(other_column))
            )
        keys = []
        for (table_name, key), its in columns.items():
            pairs = {(table_name.folded(), folded_name(column)) for column, _, _ in its} | {
                its_end[1:] for its_end in its
            }
            if any(at in wanted for at, _ in pairs):
                own = tuple(column for column, _, _ in its)
                index = self._index_columns(table_name).get(folded_name(key))
                keys.append(
                    ForeignKey(
                        name=key,
                        table=table_name,
                        own=own,
                        columns=frozenset(pairs),
                        has_index=index == list(map(folded_name, own)),
                    )
                )
        return keys, self._index_columns(self.existing(names[:1]).get(names[0].folded(), names[0]))

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation of a database, or None if it does not exist."""
        found = default_collations(self.rows)
        return found.get(closest(schema, found) or schema)

    def blockers(self, names: Iterable[TableName]) -> tuple[str, ...]:
        """Return who holds locks that a statement on these tables waits for, if known."""
        return blockers(self.rows, names)


def default_collations(query: Query) -> dict[str, str]:
    """Return name → default collation of every database."""
    sql = "SELECT schema_name, default_collation_name FROM information_schema.schemata"
    return {text_of(name): text_of(collation) for name, collation in query(sql)}


def _column(facts: ColumnFacts) -> TargetColumn:
    collation = facts.collation
    return TargetColumn(
        name=facts.name,
        data_type=facts.data_type.lower(),
        nullable=facts.nullable == "YES",
        generated=facts.generated,
        binary_collation=not collation or collation == "binary" or collation.endswith("_bin"),
        # MariaDB has it in the names; MySQL's collations of Unicode 9 do not pad either.
        pads=bool(collation)
        and collation != "binary"
        and "nopad" not in collation
        and "_0900_" not in collation,
        collation=collation,
        digits=facts.fraction if facts.scale is None else facts.scale,
        length=facts.length,
        column_type=facts.column_type,
    )


def _unique_key(parts: Sequence[IndexPart]) -> UniqueKey | str:
    """Return a unique index of these parts; of those with expressions, what all are over."""
    if any(part.is_expression for part in parts):
        return ", ".join(
            f"({part.column})" if part.is_expression else quote(folded_name(part.column))
            for part in parts
        )
    return UniqueKey(
        name=parts[0].name,
        columns=tuple(part.column for part in parts),
        prefixes=tuple(part.prefix for part in parts),
    )


def in_query(name: TableName) -> str:
    """Return a table's name for a query with arguments."""
    return qualified(name).replace("%", "%%")


def _folded(value: Any) -> str:
    return folded_name(text_of(value))
