"""What a server makes of a form after the program has translated it: outcome, and what then differs from TiDB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql.err
from pymysql.cursors import Cursor

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, NotReplicable, StatementRefused
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.sql.gate import refuse_unsafe
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.target.ddl.column_rules import MARIADB_COLLATIONS
from storage_consumer.target.ddl.translate import action_for, refuse_what_may_not_run, unfolded
from storage_consumer.target.existing_names import matters_for
from storage_consumer.target.session_settings import ROW_MODE
from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.source import SCHEMA, Column, Held, Moment, Source, clear, held, version
from tests.harness.corpora import GoldenColumn
from tests.harness.servers import DatabaseServer
from tests.harness.structure_rules import Pair, equivalence

ACTIONS: dict[str, int] = {
    "create schema": 1,
    "drop schema": 2,
    "create table": 3,
    "drop table": 4,
    "add column": 5,
    "drop column": 6,
    "add index": 7,
    "drop index": 8,
    "add foreign key": 9,
    "drop foreign key": 10,
    "truncate table": 11,
    "modify column": 12,
    "rebase auto_increment ID": 13,
    "rename table": 14,
    "set default value": 15,
    "shard row ID": 16,
    "modify table comment": 17,
    "rename index": 18,
    "add partition": 19,
    "drop partition": 20,
    "create view": 21,
    "modify table charset and collate": 22,
    "truncate partition": 23,
    "drop view": 24,
    "modify schema charset and collate": 26,
    "set tiflash replica": 30,
    "add primary key": 32,
    "drop primary key": 33,
    "create sequence": 34,
    "alter sequence": 35,
    "drop sequence": 36,
    "modify auto id cache": 39,
    "rebase auto_random ID": 40,
    "alter index visibility": 41,
    "exchange partition": 42,
    "add check constraint": 43,
    "drop check constraint": 44,
    "alter check constraint": 45,
    "rename tables": 47,
    "alter table attributes": 49,
    "alter table partition attributes": 50,
    "create placement policy": 51,
    "alter placement policy": 52,
    "drop placement policy": 53,
    "alter table partition placement": 54,
    "modify schema default placement": 55,
    "alter table placement": 56,
    "alter table cache": 57,
    "alter table statistics options": 58,
    "alter table nocache": 59,
    "create tables": 60,
    "alter table multi-schema change": 61,
    "alter table reorganize partition": 64,
    "alter table ttl": 65,
    "alter table no_ttl": 67,
    "create resource group": 68,
    "alter resource group": 69,
    "drop resource group": 70,
    "alter table partition by": 71,
    "alter table remove partitioning": 72,
    "add vector index": 73,
}


EXECUTED = "as it is"
_NOT_UNIQUE = {"unique partial index", "unique expression index", "columns of an expression index", "global index"}
"""Differences by which a key of the source is none on the target."""
_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of a form."""

    outcome: str
    """Of its statements that are not preparation, joined by semicolons."""
    problems: tuple[str, ...] = ()
    """How the server then differs from the source."""


def play(server: DatabaseServer, forms: Sequence[tuple[Form, Source]]) -> Iterator[tuple[Form, Found]]:
    """Play each form; `forms` with what the source made of it."""
    database = TargetDatabase(Downstream(port=server.port), "")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS storage_consumer")
        cursor.execute(f"SET SESSION sql_mode = '{ROW_MODE}', time_zone = '+00:00', foreign_key_checks = 0")
        for form, source in forms:
            clear(cursor)
            yield form, _Player(server.kind, database, cursor, form).play(source)
        clear(cursor)
    database.close()


class _Player:
    """Plays one form."""

    def __init__(self, server_type: str, database: TargetDatabase, cursor: Cursor, form: Form) -> None:
        self._server_type, self._database, self._cursor, self._form = server_type, database, cursor, form
        self._notes: set[str] = set()

    def play(self, source: Source) -> Found:
        """Run its statements, and write the rows that the source got after each."""
        outcomes: list[str] = []
        problems: list[str] = []
        statements = [(text, False) for text in self._form.before] + [(text, True) for text in self._form.statements]
        for number, (text, counts) in enumerate(statements):
            outcome = self._run(definition_of(text, number, source.moments[number]), is_stored=counts)
            outcomes += [outcome] if counts else []
            if outcome.startswith("halts"):
                return Found(
                    outcome="; ".join(outcomes) if counts else f"before it: {outcome}", problems=tuple(problems)
                )
            problems += self._compared(source.moments[number])
        return Found(outcome="; ".join(outcomes), problems=tuple(dict.fromkeys(problems)))

    def _run(self, definition: TableDefinition, *, is_stored: bool) -> str:
        """Run one statement as the program does; one that only prepares a form need be none that TiCDC stores."""
        text, name, found = definition.query, definition.name, tokens(unfolded(definition.query))
        step = DdlStep(table_dir="d", table_key=key_of(name), definition=definition)
        try:
            if is_stored and definition.ddl_type:
                refuse_what_may_not_run(step, self._server_type)
            names = self._database.part_names(definition.name, found) if matters_for(found) else None
            collation = self._database.database_collation(SCHEMA)
            action = action_for(definition, self._server_type, collation, names)
            if is_stored and action.statement:
                refuse_unsafe(definition, action.statement, self._server_type)
            self._notes |= set(action.notes)
            if not action.statement:
                return f"left out: {', '.join(action.notes)}"
            self._database.execute_ddl(action.statement, action.schema, definition.version)
        except (NotReplicable, StatementRefused) as fault:
            return f"halts: {fault}"
        except DdlFailed as fault:
            return f"halts: {fault} | {action.statement}"
        return (
            f"rewritten: {', '.join(note for note in action.notes if note in DIFFERENCES)}"
            if action.statement != text.strip()
            else EXECUTED
        )

    # rows

    def _compared(self, moment: Moment) -> Iterator[str]:
        """Compare what a statement left, write the source's new rows, and compare those."""
        self._cursor.execute(f"USE `{SCHEMA}`")
        left = held(self._cursor)
        yield from self._differences(left, moment.left, structure=True)
        for table, state in moment.filled.items():
            if table in left:
                yield from self._write(table, state)
        yield from self._differences(held(self._cursor), moment.filled, structure=False)

    def _write(self, table: str, state: Held) -> Iterator[str]:
        written = [name for name, _, _, _, extra in state.columns if "GENERATED" not in extra or "DEFAULT" in extra]
        names = ", ".join(f"`{name}`" for name in written)
        keyless = not any(key == "PRI" for *_, key, _ in state.columns)
        self._cursor.execute(f"DELETE FROM `{table}`") if keyless or self._form.by_chance else None
        at = [number for number, column in enumerate(state.columns) if column[0] in written]
        for row in state.raw:
            try:
                self._cursor.execute(
                    f"REPLACE INTO `{table}` ({names}) VALUES ({', '.join(['%s'] * len(at))})", [row[i] for i in at]
                )
            except pymysql.err.MySQLError as fault:
                yield f"{table} refuses a row: {fault}"
                return

    def _differences(self, there: Mapping[str, Held], source: Mapping[str, Held], *, structure: bool) -> Iterator[str]:
        if (missing := set(source) ^ set(there)) and "object of TiDB" not in self._notes:
            yield f"tables: {sorted(missing)} on one side only"
        for table in sorted(set(source) & set(there)):
            ours, theirs = there[table], source[table]
            if [column[0] for column in ours.columns] != [column[0] for column in theirs.columns]:
                yield f"{table}: other columns: {[column[0] for column in ours.columns]}"
                continue
            if ours.rows != theirs.rows and not (self._form.by_chance and structure):
                yield f"{table}: other rows: {_first_difference(ours.rows, theirs.rows)}"
            if structure:
                yield from self._structure(table, ours, theirs)

    def _structure(self, table: str, ours: Held, theirs: Held) -> Iterator[str]:
        for mine, other in zip(ours.columns, theirs.columns, strict=True):
            if "counter without index" in self._notes and "auto_increment" in other[4]:
                continue
            yield from (
                f"{table}.{mine[0]}: {text}" for text in _column_differences(self._server_type, mine, other, theirs)
            )
        for name, collation in theirs.collations.items():
            wanted = MARIADB_COLLATIONS.get(collation, collation) if self._server_type == "mariadb" else collation
            mine_ = ours.collations.get(name, "")
            if mine_.replace("utf8mb3", "utf8") != wanted.replace("utf8mb3", "utf8"):
                yield f"{table}.{name}: collation {mine_}, not {wanted}"
        if stricter := ours.unique - theirs.unique:
            yield f"{table}: unique keys that the source lacks: {sorted(stricter)}"
        lost = theirs.unique - ours.unique
        if lost and not self._notes & _NOT_UNIQUE:
            yield f"{table}: unique keys that only the source has: {sorted(lost)}"


def definition_of(text: str, number: int, moment: Moment) -> TableDefinition:
    """Return the schema file of a statement, with the action code of the job that it made at the source."""
    name = name_of(text)
    told = moment.left[name.table].columns if name.table in moment.left else ()
    return TableDefinition(
        name=name,
        version=TableVersion(version(number)),
        query=text,
        ddl_type=ACTIONS.get(moment.job, 0),
        columns=tuple(_told(column) for column in told),
        path="p",
        checksum=1,
    )


def name_of(text: str) -> TableName:
    """Whose directory the statement would be in."""
    if "DATABASE" in text.split()[:2]:
        found = re.search(r"`(\w+)`", text)
        return TableName(schema=found[1] if found else SCHEMA, table="")
    found = re.search(r"(?:TABLE|VIEW|ON|SEQUENCE)\s(?:IF (?:NOT )?EXISTS )?(?:`g`\.)?`(\w+)`", text)
    renamed = re.search(r"^RENAME .* TO (?:`g`\.)?`(\w+)`", text)
    return TableName(schema=SCHEMA, table=renamed[1] if renamed else found[1] if found else "t")


def _told(column: Column) -> TableColumn:
    """A column as the schema file tells it, as far as it matters here."""
    members = re.findall(r"'((?:[^']|'')*)'", column[1]) if column[1].startswith(("enum", "set")) else []
    return TableColumn(
        name=column[0],
        type=column[1].partition("(")[0].partition(" ")[0].upper(),
        elements=tuple(member.replace("''", "'") for member in members),
    )


def _column_differences(server_type: str, mine: Column, other: Column, theirs: Held) -> Iterator[str]:
    """What differs but for the equivalences between dialects."""
    golden = GoldenColumn(name=other[0], type=other[1], nullable=other[2] == "YES", key=other[3], extra=other[4])
    has_key = any(column[3] == "PRI" for column in theirs.columns)
    for what, was, is_ in (
        ("type", _type(other), _type(mine)),
        ("nullable", other[2], mine[2]),
        ("extra", _extra(other), _extra(mine)),
    ):
        pair = Pair(kind=server_type, source=golden, has_primary_key=has_key, what=what, was=was, is_=is_)
        if was != is_ and not equivalence(pair):
            yield f"{what} {is_!r}, not {was!r}"


def _type(column: Column) -> str:
    """Without the width of an integer, which says nothing about values."""
    return _WIDTH.sub(r"\1", column[1]) if "zerofill" not in column[1] else column[1]


def _extra(column: Column) -> str:
    """As every server says it."""
    return column[4].lower().replace("default_generated", "").replace("()", "").strip()


def _first_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    mine, other = set(ours) - set(theirs), set(theirs) - set(ours)
    return (
        f"{[text for _, text in min(mine)] if mine else '-'} for {[text for _, text in min(other)] if other else '-'}"
    )
