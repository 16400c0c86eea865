"""Judge a statement: its kind, actions, table or database, and other moved tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from storage_consumer.errors import NotReplicable, StatementRefused
from storage_consumer.model import DdlKind, NameAt, TableDefinition, TableName, folded_name
from storage_consumer.sql.gate_clauses import (
    FOREIGN_DEFINER,
    Cursor,
    NotForHere,
    Refusal,
    Vocabulary,
    readings,
)
from storage_consumer.sql.gate_words import (
    ELEMENT,
    EXPRESSION,
    INDEX_OPTIONS,
    NEVER_NAMES,
    OPTIONS,
    PARTITION,
    PARTS,
    SELECT,
    SOFT_DELETE,
    SPLITS,
    TYPES,
    VIEW_FUNCTIONS,
)
from storage_consumer.sql.parse import parsed, table_names
from storage_consumer.sql.statement import Statement
from storage_consumer.sql.tokens import NAMES, elements

_NO_COLUMN = (
    "PRIMARY|KEY|INDEX|UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR|HYBRID|CONSTRAINT|FOREIGN|CHECK"
)
"""First words of a definition that is not a column's."""


def _created_table(cursor: Cursor) -> None:
    """Check CREATE TABLE after the name; raise `Refusal` unless LIKE, or columns and options."""
    inside = cursor.upper() == "(" and cursor.upper(1) == "LIKE"
    cursor.at += inside
    if cursor.take("LIKE"):
        cursor.name()
        if inside:
            cursor.need(")")
        cursor.finish()
    else:
        first, last = cursor.group()
        _elements(cursor, first, last)
        # The options of the table, with or without PARTITION BY, from which on other words count;
        # how regions are split comes last.
        first, end = last + 1, len(cursor.found)
        last = next((at for at, _ in cursor.statement.find("SPLIT", first, depth=0)), end)
        begin = next(
            (at for at, _ in cursor.statement.find("PARTITION BY", first, last, depth=0)), last
        )
        cursor.check(first, begin, Vocabulary(ground=0, words=OPTIONS | {"UNION"}, assigns=False))
        below = PARTITION | EXPRESSION
        cursor.check(
            begin, last, Vocabulary(ground=0, words=PARTITION | {"TO"}, inside=below, assigns=False)
        )
        cursor.check(last, end, Vocabulary(ground=0, words=SPLITS))
        cursor.at = end


def _elements(cursor: Cursor, first: int, last: int) -> None:
    """Check the comma-separated definitions in [first, last)."""
    found, ground = cursor.found, cursor.found[first - 1].depth + 1
    parts = elements(found, first - 1, last)
    # All column names first: a generated column may refer to one that is defined after it.
    cursor.names.update(
        folded_name(found[at].name) for at, end in parts if at < last and found[at].kind in NAMES
    )
    for start, end in parts:
        _element(cursor, start, end, ground)


def _element(cursor: Cursor, first: int, last: int, ground: int) -> None:
    """Check the definition of one column, index or constraint."""
    cursor.at = first
    words = Vocabulary(ground=ground, words=ELEMENT, lists=True)
    if first < last and cursor.sees(_NO_COLUMN):
        cursor.check(first, last, words)
        return
    is_name = first < last and cursor.kind() in NAMES and cursor.upper() not in NEVER_NAMES
    # A column is a name and a type of TiDB. What else could be here is the grammar of another
    # server.
    if not is_name or first + 1 >= last or cursor.upper(1) not in TYPES:
        raise cursor.refusal()
    cursor.check(first + 1, last, words)


RENAMES = frozenset((DdlKind.RENAME_TABLE, DdlKind.RENAME_TABLES))
EXCHANGES = frozenset((DdlKind.EXCHANGE_PARTITION,))
ALTERATIONS = frozenset(
    (
        *range(5, 11), 12, 13, *range(15, 19), 22, *range(30, 34), *range(37, 42), *range(43, 46),
        *range(48, 51), 54, *range(56, 60), 61, *range(65, 68), 73, 74, 78, 79, 84, 230, 231,
    )
)  # fmt: skip
"""Action codes of a change of columns, indexes and options.

They are not distinguished: TiDB gives several actions one code (61) or that of any of them, and
some actions none. Those that move or remove rows have codes of their own, which must fit.
"""

_VOCABULARIES: Mapping[str, frozenset[str]] = {
    "column": ELEMENT,
    "element": ELEMENT,
    "partitions": PARTITION | {"TO", "AT", "INTO"},
    "names": INDEX_OPTIONS | PARTS,
    "options": OPTIONS,
    "default": EXPRESSION | {"SET", "DROP", "DEFAULT", "NULL", "TRUE", "FALSE"},
    "splits": SPLITS,
}
"""What follows the first words of an action → the bare words that it may have."""
_ACTIONS: Mapping[str, tuple[str, Sequence[DdlKind]]] = {
    "ADD {PRIMARY KEY|UNIQUE|INDEX|KEY|SPATIAL|FULLTEXT|VECTOR|COLUMNAR|HYBRID}": ("element", ()),
    "ADD {FOREIGN KEY|CONSTRAINT|CHECK}|ALGORITHM|LOCK": ("element", ()),
    "ADD PARTITION": ("partitions", (DdlKind.ADD_PARTITION, DdlKind.REORGANIZE_PARTITION)),
    "{ADD|DROP} STATS_EXTENDED|REMOVE TTL|SET TIFLASH REPLICA|CACHE|NOCACHE": ("names", ()),
    "{ENABLE|DISABLE} KEYS|{WITH|WITHOUT} VALIDATION": ("names", ()),
    "DROP PARTITION": ("names", (DdlKind.DROP_PARTITION,)),
    "DROP [PRIMARY KEY|FOREIGN KEY|INDEX|KEY|CHECK|CONSTRAINT|COLUMN]": ("names", ()),
    "RENAME {COLUMN|INDEX|KEY}|ALTER {INDEX|CHECK|CONSTRAINT}": ("names", ()),
    "TRUNCATE PARTITION": ("names", (DdlKind.TRUNCATE_PARTITION,)),
    "{COALESCE|FIRST} PARTITION": (
        "partitions",
        (DdlKind.DROP_PARTITION, DdlKind.REORGANIZE_PARTITION),
    ),
    "LAST PARTITION": ("partitions", (DdlKind.ADD_PARTITION, DdlKind.REORGANIZE_PARTITION)),
    "{REORGANIZE|MERGE FIRST|SPLIT MAXVALUE} PARTITION": (
        "partitions",
        (DdlKind.REORGANIZE_PARTITION,),
    ),
    "REMOVE PARTITIONING": ("names", (DdlKind.REMOVE_PARTITIONING,)),
    "PARTITION BY": ("partitions", (DdlKind.ALTER_PARTITIONING,)),
    "PARTITION|CONVERT TO": ("options", ()),
    "SPLIT {INDEX|PRIMARY KEY|BETWEEN}": ("splits", ()),
    "{ADD|MODIFY|CHANGE} [COLUMN]": ("column", ()),
    "ALTER [COLUMN]": ("default", ()),
}
"""The first words of an action, what follows them, and its codes; the first that fits counts."""


def _alter_table(cursor: Cursor) -> Judged:
    """Judge ALTER TABLE by its actions; raise `Refusal` for one that TiDB does not have."""
    own = cursor.name()
    # TiDB stores a bare ALTER TABLE if it could keep none of the options.
    if cursor.is_over:
        return Judged(ALTERATIONS, own)
    if not cursor.sees("RENAME {COLUMN|INDEX|KEY}") and cursor.take("RENAME [TO|AS|=]"):
        # A new name without a database belongs to the session's, which is that of the file.
        return Judged(RENAMES, cursor.name())
    if cursor.take("EXCHANGE PARTITION"):
        cursor.part()
        # Whose the other table may be is for `refuse_strangers` to say, which knows the databases
        # of the bucket.
        cursor.need("WITH TABLE")
        cursor.name()
        cursor.take("{WITH|WITHOUT} VALIDATION")
        return Judged(EXCHANGES, own)
    special = frozenset[int]()
    for first, last in _ranges(cursor):
        cursor.at, verb = first, cursor.found[first].upper if first < last else ""
        what, codes = _ACTIONS.get(cursor.choose(_ACTIONS, last), ("", ()))
        if what:
            _rest(cursor, last, what, verb)
        # No action begins so, and options have no head of their own.
        elif verb in OPTIONS:
            words = OPTIONS | {"UNION", "ORDER", "BY", "ASC", "DESC"}
            cursor.check(first, last, Vocabulary(ground=0, words=words, assigns=False))
        else:
            raise cursor.refusal()
        # If any action has codes of its own, the statement must have one of these.
        special |= frozenset(codes)
    cursor.at = len(cursor.found)
    return Judged(special or ALTERATIONS, own)


def _ranges(cursor: Cursor) -> Iterator[tuple[int, int]]:
    """Yield each action's [first, last); commas before words end it, and PARTITION clauses.

    Those are PARTITION BY and REMOVE PARTITIONING.
    """
    found, first = cursor.found, cursor.at
    for at, last in cursor.statement.find(",|PARTITION BY|REMOVE PARTITIONING", first, depth=0):
        is_comma = found[at].upper == ","
        # A comma before anything but a word lists partitions.
        if found[last : last + 1] and found[last].kind == "word" if is_comma else at > first:
            yield first, at
            first = last if is_comma else at
    yield first, len(found)


def _rest(cursor: Cursor, last: int, what: str, verb: str) -> None:
    """Check what follows the first words of an action."""
    found = cursor.found
    if what == "column":
        cursor.take("IF [NOT] EXISTS")
        if cursor.upper() == "(" and verb == "ADD":
            columns = cursor.group()
            if cursor.at != last:
                raise cursor.refusal()
            _elements(cursor, *columns)
            return
        if verb == "CHANGE":
            cursor.part()
        if cursor.at >= last:
            raise cursor.refusal()
        cursor.names.add(folded_name(found[cursor.at].name))
        _element(cursor, cursor.at, last, 0)
        return
    if what in ("names", "default", "partitions") and cursor.at < last:
        cursor.take("IF [NOT] EXISTS")
        # A part that is named with its table before it: servers may take one for the other. In the
        # other kinds only the first name may not have a dot: those further on belong to
        # expressions.
        for at in range(cursor.at, min(last if what == "names" else cursor.at + 2, len(found))):
            if found[at].text == ".":
                cursor.at = at
                raise cursor.refusal()
    inside = PARTITION | EXPRESSION if what == "partitions" else EXPRESSION
    words = Vocabulary(ground=0, words=_VOCABULARIES[what], inside=inside, lists=what == "element")
    cursor.check(cursor.at, last, words)


_SHOWN = 200
_ELSEWHERE = "DIRECTORY|CONNECTION|TABLESPACE|UNION|SECONDARY_ENGINE"
"""Options by which a server other than TiDB keeps rows outside its own tables."""
_VIEWS = frozenset((DdlKind.CREATE_VIEW,))
"""Views have no options; their UNION is that of SELECT."""
_SCHEMA_ALTERATIONS = frozenset((DdlKind.ALTER_SCHEMA, 80))
"""That of the charset, and that of soft delete."""
_TABLES = frozenset((DdlKind.CREATE_TABLE, DdlKind.CREATE_TABLES))
_ASIDE = "any {SEQUENCE|PLACEMENT POLICY|RESOURCE GROUP}"
_DATABASE_OPTIONS = OPTIONS & {
    "DEFAULT",
    "CHARACTER",
    "SET",
    "CHARSET",
    "COLLATE",
    "ENCRYPTION",
    "PLACEMENT",
    "POLICY",
}
"""Of a database."""


class Judged(NamedTuple):
    """The result of judging one reading of a statement."""

    codes: frozenset[int]
    """TiDB's action codes for it."""
    name: TableName
    """The table (after a rename, the new name) or the database (empty table) that it is about; an
    empty schema if it gives none.
    """


def refuse_foreign(definition: TableDefinition, text: str, server_type: str) -> None:
    """Raise `StatementRefused` unless TiCDC stores a statement like `text` in such a file.

    Raise `NotReplicable` if it has a feature of TiDB that is not known here. Objects that only TiDB
    has pass if the server is not TiDB, since they are not run there.
    """
    with _explained(definition, text):
        read, own = list(readings(text)), _names(parsed(definition).names)
        found = [_judged(reading, definition, aside=server_type != "tidb") for reading in read]
        # The rest of the program goes by the names of the former, so each reading has to give the
        # same ones.
        if any(_names(table_names(reading.tokens)) != own for reading in read):
            raise Refusal("a server may read other table names in it than this program does")
        # The first reading is TiDB's, and the file's Type is TiDB's own code.
        if definition.ddl_type not in found[0].codes:
            codes = ", ".join(map(str, sorted(found[0].codes)[:5]))
            raise Refusal(
                f"Type {definition.ddl_type} in the file is not the type of the statement ({codes})"
            )
        for judged in found:
            _refuse_other_name(definition, judged)


def refuse_unsafe(definition: TableDefinition, text: str, server_type: str) -> None:
    """Raise `StatementRefused` unless `text`, for a server of this type, still may run.

    For a server other than TiDB it may have no option that keeps rows elsewhere, and no engine but
    InnoDB.
    """
    with _explained(definition, text):
        for reading in readings(text):
            judged = _judged(reading, definition, aside=False)
            if strange := {*_names(table_names(reading.tokens))} - {
                *_names(parsed(definition).names)
            }:
                raise Refusal(f"it would name {min(strange)}, which the stored text does not")
            if judged.codes != RENAMES:
                _refuse_other_name(definition, judged)
            if server_type != "tidb" and judged.codes != _VIEWS:
                _refuse_elsewhere(reading)


def refuse_strangers(definition: TableDefinition, databases: Iterable[str]) -> None:
    """Raise `StatementRefused` for a rename or exchange with a database never seen.

    An exchange is EXCHANGE PARTITION; the bucket never showed the database.

    All names are those of the bucket; `databases`: those of all tables that are known of it.
    """
    ddl = parsed(definition)
    if ddl.rename is None and not ddl.exchanges_partition:
        return
    # The file's own database may be known by nothing but this file.
    known = {folded_name(database) for database in databases} | {
        folded_name(definition.name.schema)
    }
    for name in ddl.names:
        # Where a name without a database belongs is for `plan.unqualified_names` to say.
        if name.schema and folded_name(name.schema) not in known:
            raise StatementRefused(
                f"{definition.name}: the DDL with version {definition.version} ({definition.path}) was not run, "
                f"because it moves a table of {name.schema}, a database that does not appear in the bucket: "
                f"{definition.query[:200]}"
            )


def _names(named: Iterable[NameAt]) -> list[TableName]:
    """Return tables and databases without their places, in order."""
    return [TableName(schema=name.schema, table=name.table) for name in named]


@contextmanager
def _explained(definition: TableDefinition, text: str) -> Iterator[None]:
    """Turn a `Refusal` into an error that names the file and the statement."""
    try:
        yield
    except Refusal as reason:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        message = f"{definition.name}: the DDL with version {definition.version} ({definition.path}) was not run, because"
        if isinstance(reason, NotForHere):
            raise NotReplicable(f"{message} {reason}. The statement is: {shown}") from None
        raise StatementRefused(
            f"{message} TiCDC does not store such a statement for this table: {reason}. The statement is: {shown}"
        ) from None


def _refuse_other_name(definition: TableDefinition, judged: Judged) -> None:
    """Raise `Refusal` if the statement is about another table than its file.

    One step of a cycle of renames may lie under its table's last name: then only the database must
    be the file's.
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
            raise Refusal(
                f"its option {word} would keep rows in another place than the server's own tables"
            )


def _judged(reading: Statement, definition: TableDefinition, *, aside: bool) -> Judged:
    """Check a reading; raise `Refusal` if not TiDB's; skip `aside`, objects of TiDB alone."""
    # Sequences and the like are not sent to any other server, so it does not matter what they say.
    if aside and reading.begins(0, _ASIDE):
        return Judged(frozenset((definition.ddl_type,)), definition.name)
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


def _database(cursor: Cursor, schema: str, codes: Iterable[int], *more: str) -> Judged:
    """Check the options of a database; `more`: words that only this kind of statement has."""
    words = _DATABASE_OPTIONS | SOFT_DELETE | frozenset(more)
    cursor.check(
        cursor.at, len(cursor.found), Vocabulary(ground=0, words=words, inside=frozenset())
    )
    cursor.at = len(cursor.found)
    return Judged(frozenset(codes), TableName(schema=schema, table=""))


# tables


def _create_table(cursor: Cursor) -> Judged:
    name = cursor.name()
    _created_table(cursor)
    return Judged(_TABLES, name)


def _create_temporary(cursor: Cursor) -> Judged:
    """Judge CREATE GLOBAL TEMPORARY TABLE, which only TiDB has; other servers are not sent any."""
    cursor.need("TEMPORARY TABLE [IF [NOT] EXISTS]")
    name = cursor.name()
    end = len(cursor.found) - 4
    if not cursor.statement.begins(end, "ON COMMIT DELETE ROWS"):
        raise Refusal("it creates a temporary table without ON COMMIT DELETE ROWS")
    table = Cursor(Statement("", cursor.found[:end]), cursor.names, at=cursor.at)
    _created_table(table)
    cursor.at = len(cursor.found)
    return Judged(_TABLES, name)


def _drop(code: DdlKind) -> Callable[[Cursor], Judged]:
    """Return the judge of DROP TABLE or VIEW: one name, as TiCDC stores them one by one."""

    def judge(cursor: Cursor) -> Judged:
        name = cursor.name()
        cursor.take("RESTRICT|CASCADE")
        return Judged(frozenset((code,)), name)

    return judge


def _rename(cursor: Cursor) -> Judged:
    cursor.name()
    cursor.need("TO")
    # One pair only, since TiCDC stores a statement for each.
    return Judged(RENAMES, cursor.name())


def _recover(cursor: Cursor) -> Judged:
    name = cursor.name()
    # FLASHBACK may give the table a new name, RECOVER may not.
    if cursor.statement.head[0] == "FLASHBACK" and cursor.take("TO"):
        name = cursor.name()
    return Judged(frozenset((DdlKind.RECOVER_TABLE,)), name)


# indexes and views


def _create(cursor: Cursor) -> Judged:
    """Judge CREATE of an index or a view, which may have words in between.

    A DEFINER other than the account that runs the statement would lend the view that account's
    rights. Raises `Refusal`.
    """
    if cursor.take("[UNIQUE|FULLTEXT|SPATIAL|VECTOR|COLUMNAR|HYBRID] INDEX [IF [NOT] EXISTS]"):
        return _index(cursor)
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
    cursor.need("VIEW [IF [NOT] EXISTS]")
    name = cursor.name()
    if cursor.upper() == "(":
        cursor.check(*cursor.group(), Vocabulary(ground=1, words=frozenset()))
    cursor.need("AS")
    # Noted before the check, which takes any other quoted name before a parenthesis for a function.
    cursor.listed |= {
        at for at in range(cursor.at, len(cursor.found)) if _is_common_table(cursor, at)
    }
    # No token is at depth -1, so each is judged as what is inside a clause.
    words = Vocabulary(ground=-1, words=SELECT, inside=SELECT, functions=VIEW_FUNCTIONS)
    cursor.check(cursor.at, len(cursor.found), words)
    cursor.at = len(cursor.found)
    return Judged(_VIEWS, name)


def _is_common_table(cursor: Cursor, at: int) -> bool:
    """Return whether a name with columns is a common table's; else it is a function's."""
    found, end = cursor.found, cursor.ends.get(at + 1, -1)
    if (
        found[at].kind != "quoted"
        or end < 0
        or found[at - 1].upper not in ("WITH", "RECURSIVE", ",")
    ):
        return False
    are_names = all(
        found[place].kind == "quoted" or found[place].text == "," for place in range(at + 2, end)
    )
    return are_names and cursor.statement.begins(end + 1, "AS (") > 0


def _index(cursor: Cursor) -> Judged:
    """Judge CREATE INDEX and DROP INDEX from the name of the index on."""
    cursor.part()
    if cursor.statement.head[0] == "CREATE" and cursor.take("USING|TYPE"):
        cursor.word()
    cursor.need("ON")
    name = cursor.name()
    # The columns of the index, and its options.
    words = Vocabulary(ground=0, words=INDEX_OPTIONS | EXPRESSION, lists=True)
    cursor.check(cursor.at, len(cursor.found), words)
    cursor.at = len(cursor.found)
    return Judged(ALTERATIONS, name)


_KINDS: Mapping[str, Callable[[Cursor], Judged]] = {
    "ALTER TABLE": _alter_table,
    "CREATE {DATABASE|SCHEMA} [IF [NOT] EXISTS]": lambda cursor: _database(
        cursor, cursor.part(), {DdlKind.CREATE_SCHEMA}, "TIFLASH", "REPLICA", "LOCATION", "LABELS"
    ),
    "DROP {DATABASE|SCHEMA} [IF [NOT] EXISTS]": lambda cursor: Judged(
        frozenset((DdlKind.DROP_SCHEMA,)), TableName(schema=cursor.part(), table="")
    ),
    # Without a name it is about the session's database, and begins with an option.
    "ALTER {DATABASE|SCHEMA}": lambda cursor: _database(
        cursor,
        "" if cursor.sees("CHARACTER|CHARSET|COLLATE|DEFAULT") else cursor.part(),
        _SCHEMA_ALTERATIONS,
    ),
    "CREATE TABLE [IF [NOT] EXISTS]": _create_table,
    "CREATE GLOBAL": _create_temporary,
    "DROP TABLE [IF [NOT] EXISTS]": _drop(DdlKind.DROP_TABLE),
    "DROP VIEW [IF [NOT] EXISTS]": _drop(DdlKind.DROP_VIEW),
    "TRUNCATE [TABLE]": lambda cursor: Judged(frozenset((DdlKind.TRUNCATE_TABLE,)), cursor.name()),
    "RENAME TABLE": _rename,
    "{RECOVER|FLASHBACK} TABLE": _recover,
    "DROP INDEX [IF [NOT] EXISTS]": _index,
    "CREATE": _create,
}
"""First words → the function that judges the rest; the first that fits counts."""
