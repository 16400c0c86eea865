"""The actions of ALTER TABLE: the words that each begins with, its action codes in TiDB, and what may follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from storage_consumer.gate import defining
from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.words import ELEMENT, EXPRESSION, INDEX_OPTIONS, OPTIONS, PARTITION, PARTS, SPLITS
from storage_consumer.model import DdlKind, TableName, folded_name

RENAMES = frozenset((DdlKind.RENAME_TABLE, DdlKind.RENAME_TABLES))
EXCHANGES = frozenset((DdlKind.EXCHANGE_PARTITION,))
ALTERATIONS = frozenset(
    (
        *range(5, 11), 12, 13, *range(15, 19), 22, *range(30, 34), *range(37, 42), *range(43, 46),
        *range(48, 51), 54, *range(56, 60), 61, *range(65, 68), 73, 74, 78, 79, 84, 230, 231,
    )
)  # fmt: skip
"""Action codes of a change of columns, indexes and options.

They are not distinguished: TiDB gives several actions one code (61) or that of any of them, and some actions none. Those that move or
remove rows have codes of their own, which must fit.
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
    "{COALESCE|FIRST} PARTITION": ("partitions", (DdlKind.DROP_PARTITION, DdlKind.REORGANIZE_PARTITION)),
    "LAST PARTITION": ("partitions", (DdlKind.ADD_PARTITION, DdlKind.REORGANIZE_PARTITION)),
    "{REORGANIZE|MERGE FIRST|SPLIT MAXVALUE} PARTITION": ("partitions", (DdlKind.REORGANIZE_PARTITION,)),
    "REMOVE PARTITIONING": ("names", (DdlKind.REMOVE_PARTITIONING,)),
    "PARTITION BY": ("partitions", (DdlKind.ALTER_PARTITIONING,)),
    "PARTITION|CONVERT TO": ("options", ()),
    "SPLIT {INDEX|PRIMARY KEY|BETWEEN}": ("splits", ()),
    "{ADD|MODIFY|CHANGE} [COLUMN]": ("column", ()),
    "ALTER [COLUMN]": ("default", ()),
}
"""The first words of an action, what follows them, and its codes; the first that fits counts."""


def altered(cursor: Cursor, own: TableName) -> tuple[frozenset[int], TableName]:
    """Check the actions of ALTER TABLE; return their codes, and the name that the table has after them.

    Raises `Refusal` for an action that TiDB does not have.
    """
    # TiDB stores a bare ALTER TABLE if it could keep none of the options.
    if cursor.is_over:
        return ALTERATIONS, own
    if not cursor.sees("RENAME {COLUMN|INDEX|KEY}") and cursor.take("RENAME [TO|AS|=]"):
        new = cursor.name()
        cursor.finish()
        return RENAMES, new
    if cursor.take("EXCHANGE PARTITION"):
        _exchanged(cursor)
        return EXCHANGES, own
    special = frozenset[int]()
    for first, last in _ranges(cursor):
        cursor.at = first
        codes = _checked(cursor, last)
        # If any action has codes of its own, the statement must have one of these.
        special |= frozenset() if codes == ALTERATIONS else codes
    cursor.at = len(cursor.found)
    return special or ALTERATIONS, own


def _exchanged(cursor: Cursor) -> None:
    cursor.part()
    # Whose the other table may be is for `refuse_strangers` to say, which knows the databases of the bucket.
    cursor.need("WITH TABLE")
    cursor.name()
    cursor.take("{WITH|WITHOUT} VALIDATION")
    cursor.finish()


def _ranges(cursor: Cursor) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of each action: they end at a comma before a word, and before PARTITION BY and REMOVE PARTITIONING."""
    found, first = cursor.found, cursor.at
    for at, last in cursor.statement.find(",|PARTITION BY|REMOVE PARTITIONING", first, depth=0):
        is_comma = found[at].upper == ","
        # A comma before anything but a word lists partitions.
        if found[last : last + 1] and found[last].kind == "word" if is_comma else at > first:
            yield first, at
            first = last if is_comma else at
    yield first, len(found)


def _checked(cursor: Cursor, last: int) -> frozenset[int]:
    """Check one action, which ends at `last` (exclusive); return its codes."""
    verb = cursor.upper()
    what, codes = _ACTIONS.get(cursor.choose(_ACTIONS, last), ("", ()))
    if what:
        _rest(cursor, last, what, verb)
    else:
        # No action begins so, and options have no head of their own.
        _options(cursor, last)
    return frozenset(codes) or ALTERATIONS


def _rest(cursor: Cursor, last: int, what: str, verb: str) -> None:
    """Check what follows the first words of an action."""
    found = cursor.found
    if what == "column":
        cursor.take("IF [NOT] EXISTS")
        if cursor.upper() == "(" and verb == "ADD":
            columns = cursor.group()
            if cursor.at != last:
                raise cursor.refusal()
            defining.elements(cursor, *columns)
            return
        if verb == "CHANGE":
            cursor.part()
        if cursor.at >= last:
            raise cursor.refusal()
        cursor.names.add(folded_name(found[cursor.at].name))
        defining.element(cursor, cursor.at, last, 0)
        return
    if what in ("names", "default", "partitions") and cursor.at < last:
        cursor.take("IF [NOT] EXISTS")
        # In the other kinds only the first name may not have a dot: those further on belong to expressions.
        _refuse_dots(cursor, last if what == "names" else cursor.at + 2)
    inside = PARTITION | EXPRESSION if what == "partitions" else EXPRESSION
    words = Vocabulary(ground=0, words=_VOCABULARIES[what], inside=inside, lists=what == "element")
    cursor.check(cursor.at, last, words)


def _refuse_dots(cursor: Cursor, last: int) -> None:
    """Raise `Refusal` where a part of the table is named with its table before it: servers may take one for the other."""
    for at in range(cursor.at, min(last, len(cursor.found))):
        if cursor.found[at].text == ".":
            cursor.at = at
            raise cursor.refusal()


def _options(cursor: Cursor, last: int) -> None:
    """Check a run of table options."""
    first = cursor.at
    if first >= last or cursor.found[first].upper not in OPTIONS:
        raise cursor.refusal()
    words = OPTIONS | {"UNION", "ORDER", "BY", "ASC", "DESC"}
    cursor.check(first, last, Vocabulary(ground=0, words=words, assigns=False))
