"""The actions of ALTER TABLE: the words that each begins with, its action codes in TiDB, and what may follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from storage_consumer.gate import defining
from storage_consumer.gate.clauses import Cursor, Vocabulary
from storage_consumer.gate.words import ELEMENT, EXPRESSION, INDEX_OPTIONS, OPTIONS, PARTITION, SPLITS
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

_COLUMN, _INDEX, _CONSTRAINT, _PARTITIONS, _NAMES, _OPTIONS, _DEFAULT, _SPLITS = range(8)
_Action = tuple[int, frozenset[int]]


def _action(what: int, *codes: DdlKind) -> _Action:
    return what, frozenset(codes) or ALTERATIONS


_ACTIONS: Mapping[tuple[str, ...], _Action] = MappingProxyType(
    {
        ("ADD", "COLUMN"): _action(_COLUMN),
        ("ADD", "PRIMARY", "KEY"): _action(_INDEX),
        ("ADD", "UNIQUE"): _action(_INDEX),
        ("ADD", "INDEX"): _action(_INDEX),
        ("ADD", "KEY"): _action(_INDEX),
        ("ADD", "SPATIAL"): _action(_INDEX),
        ("ADD", "FULLTEXT"): _action(_INDEX),
        ("ADD", "VECTOR"): _action(_INDEX),
        ("ADD", "COLUMNAR"): _action(_INDEX),
        ("ADD", "HYBRID"): _action(_INDEX),
        ("ADD", "FOREIGN", "KEY"): _action(_CONSTRAINT),
        ("ADD", "CONSTRAINT"): _action(_CONSTRAINT),
        ("ADD", "CHECK"): _action(_CONSTRAINT),
        ("ADD", "PARTITION"): _action(_PARTITIONS, DdlKind.ADD_PARTITION, DdlKind.REORGANIZE_PARTITION),
        ("ADD", "STATS_EXTENDED"): _action(_NAMES),
        ("ADD",): _action(_COLUMN),
        ("DROP", "PRIMARY", "KEY"): _action(_NAMES),
        ("DROP", "FOREIGN", "KEY"): _action(_NAMES),
        ("DROP", "INDEX"): _action(_NAMES),
        ("DROP", "KEY"): _action(_NAMES),
        ("DROP", "CHECK"): _action(_NAMES),
        ("DROP", "CONSTRAINT"): _action(_NAMES),
        ("DROP", "PARTITION"): _action(_NAMES, DdlKind.DROP_PARTITION),
        ("DROP", "STATS_EXTENDED"): _action(_NAMES),
        ("DROP", "COLUMN"): _action(_NAMES),
        ("DROP",): _action(_NAMES),
        ("MODIFY", "COLUMN"): _action(_COLUMN),
        ("MODIFY",): _action(_COLUMN),
        ("CHANGE", "COLUMN"): _action(_COLUMN),
        ("CHANGE",): _action(_COLUMN),
        ("RENAME", "COLUMN"): _action(_NAMES),
        ("RENAME", "INDEX"): _action(_NAMES),
        ("RENAME", "KEY"): _action(_NAMES),
        ("ALTER", "INDEX"): _action(_NAMES),
        ("ALTER", "CHECK"): _action(_NAMES),
        ("ALTER", "CONSTRAINT"): _action(_NAMES),
        ("ALTER", "COLUMN"): _action(_DEFAULT),
        ("ALTER",): _action(_DEFAULT),
        ("TRUNCATE", "PARTITION"): _action(_NAMES, DdlKind.TRUNCATE_PARTITION),
        ("REORGANIZE", "PARTITION"): _action(_PARTITIONS, DdlKind.REORGANIZE_PARTITION),
        ("COALESCE", "PARTITION"): _action(_PARTITIONS, DdlKind.DROP_PARTITION, DdlKind.REORGANIZE_PARTITION),
        ("FIRST", "PARTITION"): _action(_PARTITIONS, DdlKind.DROP_PARTITION, DdlKind.REORGANIZE_PARTITION),
        ("LAST", "PARTITION"): _action(_PARTITIONS, DdlKind.ADD_PARTITION, DdlKind.REORGANIZE_PARTITION),
        ("MERGE", "FIRST", "PARTITION"): _action(_PARTITIONS, DdlKind.REORGANIZE_PARTITION),
        ("SPLIT", "MAXVALUE", "PARTITION"): _action(_PARTITIONS, DdlKind.REORGANIZE_PARTITION),
        ("SPLIT", "INDEX"): _action(_SPLITS),
        ("SPLIT", "PRIMARY", "KEY"): _action(_SPLITS),
        ("SPLIT", "BETWEEN"): _action(_SPLITS),
        ("REMOVE", "PARTITIONING"): _action(_NAMES, DdlKind.REMOVE_PARTITIONING),
        ("REMOVE", "TTL"): _action(_NAMES),
        ("PARTITION", "BY"): _action(_PARTITIONS, DdlKind.ALTER_PARTITIONING),
        ("PARTITION",): _action(_OPTIONS),
        ("CONVERT", "TO"): _action(_OPTIONS),
        ("SET", "TIFLASH", "REPLICA"): _action(_NAMES),
        ("CACHE",): _action(_NAMES),
        ("NOCACHE",): _action(_NAMES),
        ("ENABLE", "KEYS"): _action(_NAMES),
        ("WITH", "VALIDATION"): _action(_NAMES),
        ("WITHOUT", "VALIDATION"): _action(_NAMES),
        ("DISABLE", "KEYS"): _action(_NAMES),
        ("ALGORITHM",): _action(_INDEX),
        ("LOCK",): _action(_INDEX),
    }
)
_LONGEST = max(map(len, _ACTIONS))
# In the order of the constants above.
_VOCABULARIES = (
    ELEMENT,
    ELEMENT,
    ELEMENT,
    PARTITION | {"TO", "AT", "INTO"},
    INDEX_OPTIONS
    | {
        "IF",
        "EXISTS",
        "TO",
        "AS",
        "ENFORCED",
        "PRIMARY",
        "ALL",
        "CARDINALITY",
        "DEPENDENCY",
        "CORRELATION",
        "RESTRICT",
        "CASCADE",
    },
    OPTIONS,
    {"SET", "DROP", "DEFAULT", "NULL", "TRUE", "FALSE"} | EXPRESSION,
    SPLITS,
)


def altered(cursor: Cursor, own: TableName) -> tuple[frozenset[int], TableName]:
    """Check the actions of ALTER TABLE; return their codes, and the name that the table has after them.

    Raises `Refusal` for an action that TiDB does not have.
    """
    # TiDB stores a bare ALTER TABLE if it could keep none of the options.
    if cursor.is_over:
        return ALTERATIONS, own
    if cursor.take("RENAME", "TO") or cursor.take("RENAME", "AS") or cursor.take("RENAME", "=") or _renames(cursor):
        new = cursor.name()
        cursor.finish()
        return RENAMES, new
    if cursor.take("EXCHANGE", "PARTITION"):
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


def _renames(cursor: Cursor) -> bool:
    """Take RENAME if a name is next; return whether it was."""
    if cursor.upper() != "RENAME" or cursor.upper(1) in ("COLUMN", "INDEX", "KEY"):
        return False
    return cursor.take("RENAME")


def _exchanged(cursor: Cursor) -> None:
    cursor.part()
    # Whose the other table may be is for `refuse_strangers` to say, which knows the databases of the bucket.
    cursor.need("WITH", "TABLE")
    cursor.name()
    _ = cursor.take("WITH", "VALIDATION") or cursor.take("WITHOUT", "VALIDATION")
    cursor.finish()


def _ranges(cursor: Cursor) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of each action: they end at a comma before a word, and before PARTITION BY and REMOVE PARTITIONING."""
    found, first = cursor.found, cursor.at
    for at in range(first, len(found)):
        token = found[at]
        if token.depth or token.kind == "quoted":
            continue
        pair = [one.upper for one in found[at : at + 2]]
        if token.upper == "," and found[at + 1 : at + 2] and found[at + 1].kind == "word":  # else partitions are listed
            yield first, at
            first = at + 1
        elif at > first and pair in (["PARTITION", "BY"], ["REMOVE", "PARTITIONING"]):
            yield first, at
            first = at
    yield first, len(found)


def _checked(cursor: Cursor, last: int) -> frozenset[int]:
    """Check one action, which ends at `last` (exclusive); return its codes."""
    first = cursor.at
    # The longest known head wins: ADD INDEX is not ADD with a column named INDEX.
    for length in range(min(_LONGEST, last - first), 0, -1):
        words = tuple(token.upper for token in cursor.found[first : first + length])
        if words in _ACTIONS:
            what, codes = _ACTIONS[words]
            cursor.at = first + length
            _rest(cursor, last, what, words[0])
            return codes
    # No action begins so, and options have no head of their own.
    _options(cursor, last)
    return ALTERATIONS


def _rest(cursor: Cursor, last: int, what: int, verb: str) -> None:
    """Check what follows the first words of an action."""
    found = cursor.found
    if what == _COLUMN:
        cursor.existence()
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
    if what in (_NAMES, _DEFAULT, _PARTITIONS) and cursor.at < last:
        cursor.existence()
        # In the other kinds only the first name may not have a dot: those further on belong to expressions.
        _refuse_dots(cursor, last if what == _NAMES else cursor.at + 2)
    words = frozenset(_VOCABULARIES[what])
    inside = PARTITION | EXPRESSION if what == _PARTITIONS else EXPRESSION
    cursor.check(cursor.at, last, Vocabulary(ground=0, words=words, inside=inside, lists=what in (_INDEX, _CONSTRAINT)))


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
