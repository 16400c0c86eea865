"""One statement: its kind, the action codes of this kind, the table or database that it is about, and what others it moves rows of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from storage_consumer.errors import NotReplicable, StatementRefused, TableError
from storage_consumer.gate import defining
from storage_consumer.gate.altering import ALTERATIONS, RENAMES, altered
from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.comments import FOREIGN_DEFINER, NotForHere, Refusal
from storage_consumer.gate.functions import VIEW_FUNCTIONS
from storage_consumer.gate.readings import readings
from storage_consumer.gate.words import EXPRESSION, INDEX_OPTIONS, OPTIONS, SELECT, SOFT_DELETE
from storage_consumer.model import DdlKind, NameAt, TableDefinition, TableName, folded_name
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import Statement
from storage_consumer.sql.table_names import table_names

_SHOWN = 200
_ELSEWHERE = "DIRECTORY|CONNECTION|TABLESPACE|UNION|SECONDARY_ENGINE"
"""Options by which a server other than TiDB keeps rows outside its own tables."""
_VIEWS = frozenset((DdlKind.CREATE_VIEW,))
"""Views have no options; their UNION is that of SELECT."""
_SCHEMA_ALTERATIONS = frozenset((DdlKind.ALTER_SCHEMA, 80))
"""That of the charset, and that of soft delete."""
_TABLES = frozenset((DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES))
_ASIDE = "any {SEQUENCE|PLACEMENT POLICY|RESOURCE GROUP}"
_OPTIONS = OPTIONS & {"DEFAULT", "CHARACTER", "SET", "CHARSET", "COLLATE", "ENCRYPTION", "PLACEMENT", "POLICY"}
"""Of a database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The result of judging one reading of a statement."""

    codes: frozenset[int]
    """TiDB's action codes for it."""
    name: TableName
    """The table (after a rename, the new name) or the database (empty table) that it is about; an empty schema if it gives none."""


def refuse_foreign(definition: TableDefinition, text: str, server_type: str) -> None:
    """Raise `StatementRefused` unless the statement, as `text` writes it, is one that TiCDC stores in a file like this one.

    Raise `NotReplicable` if it has a feature of TiDB that is not known here. Objects that only TiDB has pass if the server is not TiDB, since they are not run there.
    """
    try:
        read = list(readings(text))
        found = [_judged(reading, definition, aside=server_type != "tidb") for reading in read]
        for reading in read:
            _refuse_other_names(definition, reading)
        # The first reading is TiDB's, and the file's Type is TiDB's own code.
        _refuse_other_code(definition, found[0])
        for judged in found:
            _refuse_other_name(definition, judged)
    except Refusal as reason:
        raise _refused(definition, text, reason) from None


def refuse_unsafe(definition: TableDefinition, text: str, server_type: str) -> None:
    """Raise `StatementRefused` unless `text`, which is to be sent to a server of this type, is still such a statement.

    For a server other than TiDB it may have no option that keeps rows elsewhere, and no engine but InnoDB.
    """
    try:
        for reading in readings(text):
            judged = _judged(reading, definition, aside=False)
            _refuse_new_names(definition, reading)
            if judged.codes != RENAMES:
                _refuse_other_name(definition, judged)
            if server_type != "tidb" and judged.codes != _VIEWS:
                _refuse_elsewhere(reading)
    except Refusal as reason:
        raise _refused(definition, text, reason) from None


def refuse_strangers(definition: TableDefinition, databases: Iterable[str]) -> None:
    """Raise `StatementRefused` for a rename, or an EXCHANGE PARTITION, that moves a table of a database the bucket never showed.

    All names are those of the bucket; `databases`: those of all tables that are known of it.
    """
    ddl = parsed(definition)
    if ddl.rename is None and not ddl.exchanges_partition:
        return
    # The file's own database may be known by nothing but this file.
    known = {folded_name(database) for database in databases} | {folded_name(definition.name.schema)}
    for name in ddl.names:
        # Where a name without a database belongs is for `plan.unqualified_names` to say.
        if name.schema and folded_name(name.schema) not in known:
            raise StatementRefused(
                f"{definition.name}: the DDL with version {definition.version} ({definition.path}) was not run, "
                f"because it moves a table of {name.schema}, a database that does not appear in the bucket: "
                f"{definition.query[:200]}"
            )


def _refuse_other_names(definition: TableDefinition, reading: Statement) -> None:
    # The rest of the program goes by the names of the former, so each reading has to give the same ones.
    if _names(table_names(reading.tokens)) != _names(parsed(definition).names):
        raise Refusal("a server may read other table names in it than this program does")


def _refuse_new_names(definition: TableDefinition, reading: Statement) -> None:
    if strange := {*_names(table_names(reading.tokens))} - {*_names(parsed(definition).names)}:
        raise Refusal(f"it would name {min(strange)}, which the stored text does not")


def _names(named: Iterable[NameAt]) -> list[TableName]:
    """Return tables and databases without their places, in order."""
    return [TableName(schema=name.schema, table=name.table) for name in named]


def _refused(definition: TableDefinition, text: str, reason: Refusal) -> TableError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    message = f"{definition.name}: the DDL with version {definition.version} ({definition.path}) was not run, because"
    if isinstance(reason, NotForHere):
        return NotReplicable(f"{message} {reason}. The statement is: {shown}")
    return StatementRefused(
        f"{message} TiCDC does not store such a statement for this table: {reason}. The statement is: {shown}"
    )


def _refuse_other_code(definition: TableDefinition, judged: Judged) -> None:
    if definition.ddl_type not in judged.codes:
        codes = ", ".join(map(str, sorted(judged.codes)[:5]))
        raise Refusal(f"Type {definition.ddl_type} in the file is not the type of the statement ({codes})")


def _refuse_other_name(definition: TableDefinition, judged: Judged) -> None:
    """Raise `Refusal` if the statement is about another table than its file.

    One step of a cycle of renames may lie under its table's last name: then only the database must be the file's.
    """
    own, name = definition.name.folded(), judged.name.folded()
    same_schema = name.schema in ("", own.schema)
    astray = judged.codes == RENAMES and bool(own.table)
    if not same_schema or (name.table != own.table and not astray):
        raise Refusal(f"it is about {judged.name}, but its file is about {definition.name}")


def _refuse_elsewhere(reading: Statement) -> None:
    found = reading.tokens
    # To the end of the text: each partition may have such options of its own.
    for at, last in reading.find(f"{_ELSEWHERE}|ENGINE [=] any"):
        word, value = found[at].upper, found[last - 1]
        if word == "ENGINE":
            if value.name.strip("'\"").upper() != "INNODB":
                raise Refusal(f"its engine is not InnoDB but {value.text[:60]}")
        # After a dot the word is a name.
        elif found[at - 1].text != ".":
            raise Refusal(f"its option {word} would keep rows in another place than the server's own tables")


def _judged(reading: Statement, definition: TableDefinition, *, aside: bool) -> Judged:
    """Check one reading; raise `Refusal` for what is not TiDB's. `aside`: objects that only TiDB has are not examined."""
    # Sequences and the like are not sent to any other server, so it does not matter what they say.
    if aside and reading.begins(0, _ASIDE):
        return Judged(codes=frozenset((definition.ddl_type,)), name=definition.name)
    cursor = Cursor(reading, {folded_name(column.name) for column in definition.columns})
    head = cursor.choose(_KINDS)
    if not head:
        first = " ".join(token.text for token in reading.tokens[:2])[:60]
        raise Refusal(f"TiCDC stores no statement that begins with {first}")
    # What the judge leaves over is refused below.
    judged = _KINDS[head](cursor)
    cursor.finish()
    return judged


# databases


def _create_database(cursor: Cursor) -> Judged:
    cursor.take("IF [NOT] EXISTS")
    return _database(cursor, cursor.part(), {DdlKind.CREATE_SCHEMA}, "TIFLASH", "REPLICA", "LOCATION", "LABELS")


def _drop_database(cursor: Cursor) -> Judged:
    cursor.take("IF [NOT] EXISTS")
    return Judged(codes=frozenset((DdlKind.DROP_SCHEMA,)), name=TableName(schema=cursor.part(), table=""))


def _alter_database(cursor: Cursor) -> Judged:
    # Without a name it is about the session's database, and begins with an option.
    named = not cursor.sees("CHARACTER|CHARSET|COLLATE|DEFAULT")
    return _database(cursor, cursor.part() if named else "", _SCHEMA_ALTERATIONS)


def _database(cursor: Cursor, schema: str, codes: Iterable[int], *more: str) -> Judged:
    """Check the options of a database; `more`: words that only this kind of statement has."""
    words = _OPTIONS | SOFT_DELETE | frozenset(more)
    cursor.check(cursor.at, len(cursor.found), Vocabulary(ground=0, words=words, inside=frozenset()))
    cursor.at = len(cursor.found)
    return Judged(codes=frozenset(codes), name=TableName(schema=schema, table=""))


# tables


def _create_table(cursor: Cursor) -> Judged:
    cursor.take("IF [NOT] EXISTS")
    name = cursor.name()
    defining.created_table(cursor)
    return Judged(codes=_TABLES, name=name)


def _create_temporary(cursor: Cursor) -> Judged:
    """Judge CREATE GLOBAL TEMPORARY TABLE, which only TiDB has; other servers are not sent any."""
    cursor.need("TEMPORARY TABLE")
    cursor.take("IF [NOT] EXISTS")
    name = cursor.name()
    end = len(cursor.found) - 4
    if not cursor.statement.begins(end, "ON COMMIT DELETE ROWS"):
        raise Refusal("it creates a temporary table without ON COMMIT DELETE ROWS")
    table = Cursor(Statement("", cursor.found[:end]), cursor.names, at=cursor.at)
    defining.created_table(table)
    cursor.at = len(cursor.found)
    return Judged(codes=_TABLES, name=name)


def _drop(code: DdlKind) -> Callable[[Cursor], Judged]:
    """Return the judge of DROP TABLE or DROP VIEW: one name, since TiCDC stores a statement for each."""

    def judge(cursor: Cursor) -> Judged:
        cursor.take("IF [NOT] EXISTS")
        name = cursor.name()
        cursor.take("RESTRICT|CASCADE")
        return Judged(codes=frozenset((code,)), name=name)

    return judge


def _truncate(cursor: Cursor) -> Judged:
    return Judged(codes=frozenset((DdlKind.TRUNCATE_TABLE,)), name=cursor.name())


def _rename(cursor: Cursor) -> Judged:
    cursor.name()
    cursor.need("TO")
    # One pair only, since TiCDC stores a statement for each.
    return Judged(codes=RENAMES, name=cursor.name())


def _recover(cursor: Cursor) -> Judged:
    name = cursor.name()
    # FLASHBACK may give the table a new name, RECOVER may not.
    if cursor.statement.head[0] == "FLASHBACK" and cursor.take("TO"):
        name = cursor.name()
    return Judged(codes=frozenset((DdlKind.RECOVER_TABLE,)), name=name)


def _alter_table(cursor: Cursor) -> Judged:
    name = cursor.name()
    codes, after = altered(cursor, name)
    # A new name without a database belongs to the session's, which is that of the file.
    return Judged(codes=codes, name=after)


# indexes and views


def _create(cursor: Cursor) -> Judged:
    """Judge CREATE of an index or a view, which may have words in between."""
    if cursor.take("[UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR|HYBRID] INDEX"):
        return _create_index(cursor)
    return Judged(codes=_VIEWS, name=_created_view(cursor))


def _created_view(cursor: Cursor) -> TableName:
    """Check what follows CREATE in CREATE VIEW; return the view's name.

    A DEFINER other than the account that runs the statement would lend the view that account's rights. Raises `Refusal`.
    """
    cursor.take("OR REPLACE")
    if cursor.take("ALGORITHM ="):
        cursor.word()
    if cursor.take("DEFINER =") and not cursor.take("CURRENT_USER"):
        raise NotForHere(FOREIGN_DEFINER)
    # CURRENT_USER may be written as a call.
    if cursor.upper() == "(" and cursor.upper(1) == ")":
        cursor.at += 2
    if cursor.take("SQL SECURITY") and not cursor.take("DEFINER|INVOKER"):
        raise cursor.refusal()
    cursor.need("VIEW")
    cursor.take("IF [NOT] EXISTS")
    name = cursor.name()
    if cursor.upper() == "(":
        cursor.check(*cursor.group(), Vocabulary(ground=1, words=frozenset()))
    cursor.need("AS")
    # Noted before the check, which takes any other quoted name before a parenthesis for a function.
    cursor.listed |= {at for at in range(cursor.at, len(cursor.found)) if _is_common_table(cursor, at)}
    # No token is at depth -1, so each is judged as what is inside a clause.
    words = Vocabulary(ground=-1, words=SELECT, inside=SELECT, functions=VIEW_FUNCTIONS)
    cursor.check(cursor.at, len(cursor.found), words)
    cursor.at = len(cursor.found)
    return name


def _is_common_table(cursor: Cursor, at: int) -> bool:
    """Return whether a name with a list of columns is a common table's; any other name that is called is a function of some database."""
    found, end = cursor.found, cursor.ends.get(at + 1, -1)
    if found[at].kind != "quoted" or end < 0 or found[at - 1].upper not in ("WITH", "RECURSIVE", ","):
        return False
    are_names = all(found[place].kind == "quoted" or found[place].text == "," for place in range(at + 2, end))
    return are_names and cursor.statement.begins(end + 1, "AS (") > 0


def _create_index(cursor: Cursor) -> Judged:
    cursor.take("IF [NOT] EXISTS")
    cursor.part()
    if cursor.take("USING|TYPE"):
        cursor.word()
    return _index_on(cursor)


def _drop_index(cursor: Cursor) -> Judged:
    cursor.take("IF [NOT] EXISTS")
    cursor.part()
    return _index_on(cursor)


def _index_on(cursor: Cursor) -> Judged:
    cursor.need("ON")
    name = cursor.name()
    # The columns of the index, and its options.
    words = Vocabulary(ground=0, words=INDEX_OPTIONS | EXPRESSION, lists=True)
    cursor.check(cursor.at, len(cursor.found), words)
    cursor.at = len(cursor.found)
    return Judged(codes=ALTERATIONS, name=name)


_KINDS: Mapping[str, Callable[[Cursor], Judged]] = {
    "CREATE {DATABASE|SCHEMA}": _create_database,
    "DROP {DATABASE|SCHEMA}": _drop_database,
    "ALTER {DATABASE|SCHEMA}": _alter_database,
    "CREATE TABLE": _create_table,
    "CREATE GLOBAL": _create_temporary,
    "DROP TABLE": _drop(DdlKind.DROP_TABLE),
    "DROP VIEW": _drop(DdlKind.DROP_VIEW),
    "TRUNCATE [TABLE]": _truncate,
    "RENAME TABLE": _rename,
    "{RECOVER|FLASHBACK} TABLE": _recover,
    "ALTER TABLE": _alter_table,
    "DROP INDEX": _drop_index,
    "CREATE": _create,
}
"""First words → the function that judges the rest; the first that fits counts."""
