"""What a statement says: the tables it names and reads, and their names on a target.

A definition holds what its statement says; everybody asks it by `parsed`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

from storage_consumer.model import (
    NameAt,
    ParsedDdl,
    Rename,
    TableDefinition,
    TableName,
    folded_name,
)
from storage_consumer.sql.tokens import (
    NAMES,
    Token,
    find_words,
    has_words,
    makes_global_index,
    names,
    parentheses,
    quote,
    replace_spans,
    tokens,
)

_ENDS = frozenset(
    (
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "WINDOW",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "LOCK",
        "INTO",
    )
)
"""Words after which no table follows at the same depth until the next SELECT."""
_JOINS = frozenset(("JOIN", "STRAIGHT_JOIN"))
_NO_ALIAS = frozenset(
    (
        *_ENDS,
        *_JOINS,
        *(
            "INNER",
            "LEFT",
            "RIGHT",
            "FULL",
            "OUTER",
            "CROSS",
            "NATURAL",
            "ON",
            "USING",
            "FOR",
            "WITH",
            "AS",
        ),
        *("USE", "FORCE", "IGNORE", "PARTITION", "TABLESAMPLE", "PROCEDURE"),
    )
)
_NO_SOURCE = frozenset(("DUAL",))
_BEFORE_ROWS = frozenset(("SELECT", "LATERAL", "VALUES", "TABLE", "WITH"))


@dataclass(frozen=True, slots=True)
class Source:
    """A table in a FROM clause."""

    at: int
    """Index of the first token of its name."""
    length: int
    """Number of tokens of its name: 1, or 3 with the database."""
    end: int
    """Index of the first token after the name, where an alias may be inserted."""
    aliased: bool


@dataclass(slots=True)
class _Clause:
    """The clause that is open at one depth of parentheses."""

    place: str = ""
    """``select`` after SELECT, ``from`` in a FROM clause, otherwise empty."""
    expects: bool = False
    """Whether a table follows."""


Ends = Mapping[int, int]
"""See `parentheses`."""


def sources(found: Sequence[Token], start: int) -> Iterator[Source]:
    """Yield the tables of the SELECT at index `start`, in order, nested ones included."""
    ends, around = parentheses(found)
    scopes = defaultdict[str, list[tuple[int, int]]](list)
    for index in range(start, len(found)):
        if found[index].upper == "WITH" and not _is_behind_dot(found, index):
            # A WITH holds up to the end of the parenthesis that it is in.
            for name, low, high in _common_tables(
                found, index, ends.get(around[index], len(found)), ends
            ):
                scopes[name].append((low, high))
    hidden = {name: sorted(each) for name, each in scopes.items()}
    # The furthest end of all earlier scopes decides: nested scopes need no search of their own.
    highs = {
        name: list(accumulate((high for _, high in each), max)) for name, each in hidden.items()
    }
    for source in _named_sources(found, start, ends):
        name = folded_name(found[source.at].name)
        place = bisect_right(hidden.get(name, ()), source.at, key=itemgetter(0)) - 1
        if source.length > 1 or place < 0 or source.at >= highs[name][place]:
            yield source


def _named_sources(found: Sequence[Token], start: int, ends: Ends) -> Iterator[Source]:
    """Yield what `sources` does, and common table expressions too."""
    clauses = [_Clause()]
    at = start
    while at < len(found):
        token, clause = found[at], clauses[-1]
        if token.kind == "symbol" and token.text == ")":
            # The outermost clause stays: a hostile statement may close more than it opened.
            del clauses[max(1, len(clauses) - 1) :]
        elif token.kind == "symbol" and token.text == "(":
            # Where a table is expected, a parenthesis holds tables or a subquery; the latter says
            # so by its SELECT.
            clauses.append(_Clause("from", expects=True) if clause.expects else _Clause())
            clause.expects = False
        # These words begin a subquery or a list of rows; LATERAL stands before one.
        elif clause.expects and token.kind in NAMES and token.upper not in _BEFORE_ROWS:
            clause.expects = False
            if source := _source(found, at, ends):
                yield source
                at = source.end
                continue
        elif _is_behind_dot(found, at) or (token.upper in _ENDS and found[at - 1].upper == "AS"):
            pass  # a column or an alias, whatever its name
        elif clause.place == "from" and token.upper in ("USE", "FORCE", "IGNORE"):
            # In the longest form, USE INDEX FOR ORDER BY, the list is the fifth token after the
            # first word.
            opening = next(
                (i for i in range(at + 1, min(at + 6, len(found))) if found[i].text == "("), -1
            )
            at = max(at + 1, ends.get(opening, -1) + 1)
            continue
        else:
            _follow(clause, token)
        at += 1


def _is_behind_dot(found: Sequence[Token], at: int) -> bool:
    """Return whether a word is the last part of a qualified name, and so not a keyword."""
    return at > 0 and found[at].kind in NAMES and found[at - 1].text == "."


def _follow(clause: _Clause, token: Token) -> None:
    """Update the clause for a keyword or comma."""
    word = token.upper
    if word == "SELECT":
        clause.place, clause.expects = "select", False
    # The second is TABLE t, short for SELECT * FROM t.
    elif (word == "FROM" and clause.place == "select") or (word == "TABLE" and not clause.place):
        clause.place, clause.expects = "from", True
    elif clause.place == "from" and (word == "," or word in _JOINS):
        clause.expects = True
    elif word in _ENDS or (word == "WITH" and clause.expects):
        clause.place, clause.expects = "", False


def _source(found: Sequence[Token], at: int, ends: Ends) -> Source | None:
    """Return the table whose name begins at an index; None for a function and for DUAL."""
    length = 1
    if at + 2 < len(found) and found[at + 1].text == "." and found[at + 2].kind in NAMES:
        length = 3
    end = at + length
    follows = found[end] if end < len(found) else None
    # A parenthesis makes it a function, such as JSON_TABLE.
    if (length == 1 and found[at].upper in _NO_SOURCE) or (
        follows is not None and follows.text == "("
    ):
        return None
    # In t PARTITION (p0, p1) AS x the alias follows the list.
    if follows is not None and follows.upper == "PARTITION" and end + 1 < len(found):
        end = max(end, ends.get(end + 1, -1) + 1)
        follows = found[end] if end < len(found) else None
    aliased = follows is not None and (
        follows.upper == "AS" or (follows.kind in NAMES and follows.upper not in _NO_ALIAS)
    )
    return Source(at, length, end, aliased)


def _common_tables(
    found: Sequence[Token], index: int, until: int, ends: Ends
) -> Iterator[tuple[str, int, int]]:
    """Yield a WITH's common tables, folded, and index ranges (last exclusive) of their scope.

    They hide a table there, up to `until`.

    ``WITH CHECK OPTION`` and ``WITH ROLLUP`` define none.
    """
    at, recursive = index + 1, False
    if at < len(found) and found[at].upper == "RECURSIVE":
        at, recursive = at + 1, True
    while at < len(found) and found[at].kind in NAMES:
        name = folded_name(found[at].name)
        at += 1
        if at < len(found) and found[at].text == "(":
            at = ends.get(at, -1) + 1
        # Not the definition of a common table: WITH has other uses at the end of a SELECT.
        if at + 1 >= len(found) or found[at].upper != "AS" or found[at + 1].text != "(":
            return
        end = ends.get(at + 1, -1)
        if end < 0:
            return
        # A recursive expression is visible in its own body, any other only after it.
        yield name, at + 1 if recursive else end, until
        if end + 1 >= len(found) or found[end + 1].text != ",":
            return
        at = end + 2


_HIDDEN = "_v$_"
"""Prefix of the columns of expression indexes."""
_BEFORE_OPERANDS = frozenset(
    (
        *(
            "SELECT",
            "DISTINCT",
            "ALL",
            "BY",
            "AND",
            "OR",
            "XOR",
            "NOT",
            "DIV",
            "MOD",
            "LIKE",
            "REGEXP",
            "BETWEEN",
        ),
        *("CASE", "WHEN", "THEN", "ELSE", "INTERVAL", "BINARY", *"(,+-*/%=<>!|&^~"),
    )
)
"""What may stand before a column that is no alias: words and signs."""

_BEFORE_LIST = frozenset(
    (
        *(
            "SELECT",
            "DISTINCT",
            "DISTINCTROW",
            "ALL",
            "HIGH_PRIORITY",
            "STRAIGHT_JOIN",
            "SQL_CACHE",
            "SQL_NO_CACHE",
        ),
        *("SQL_SMALL_RESULT", "SQL_BIG_RESULT", "SQL_BUFFER_RESULT", "SQL_CALC_FOUND_ROWS"),
    )
)
"""What may stand before the first column of a list."""
_AFTER_ITEM = frozenset((",", "FROM", ")", "", "UNION"))
"""What may stand after a column of a list; "" is the end."""


def _view_body(found: Sequence[Token]) -> int:
    """Return the index of the first token of a view's SELECT."""
    return find_words(found, "AS", depth=0, start=max(find_words(found, "VIEW", depth=0), 0)) + 1


def cannot_read(query: str, name: NameAt, columns: Sequence[str], result: Sequence[str]) -> bool:
    """Return whether a table of these columns surely is not what a CREATE VIEW reads.

    `result`: the view's own columns. Where either are not known, or the text shows too little, it
    may be. Only names in backquotes are taken for columns, as TiDB writes every one.
    """
    found = tokens(query)
    body = _view_body(found)
    read = list(sources(found, body))
    source = next((each for each in read if found[each.at].start == name.start), None)
    if source is None or not columns or find_words(found, "WITH", start=body) >= 0:
        return False
    visible = _visible_name(found, source)
    if sum(_visible_name(found, each) == visible for each in read) > 1:
        return False
    is_alone = (
        len(read) == 1 and sum(token.upper in ("SELECT", "TABLE") for token in found[body:]) == 1
    )
    end = find_words(found, "FROM", depth=found[body].depth, start=body)
    wanted = set(_columns_read(found, body, visible, end if is_alone else -1))
    there = {folded for each in columns if not (folded := folded_name(each)).startswith(_HIDDEN)}
    shown = {folded_name(each) for each in result}
    # With names of its own, the view's columns say nothing of the table's.
    if "*" in wanted and shown and found[body - 2].text != ")":
        is_all = is_alone and found[body + 1].text == "*" and end == body + 2
        if not there <= shown or (is_all and there != shown):
            return True
    return not wanted - {"*", "_tidb_rowid"} <= there


def reads_all_columns(query: str) -> bool:
    """Return whether a CREATE VIEW has an asterisk for the columns of a table."""
    found = tokens(query)
    body = _view_body(found)
    return found[body].upper == "TABLE" or any(
        token.text == "*"
        and (before.upper in _BEFORE_LIST or before.text in (",", "."))
        and after in _AFTER_ITEM
        for before, token, after in zip(
            found, found[1:], [*(t.upper for t in found[2:]), ""], strict=False
        )
    )


def _visible_name(found: Sequence[Token], source: Source) -> str:
    """Return the folded name under which the statement's columns know a table."""
    if not source.aliased:
        return folded_name(found[source.at + source.length - 1].name)
    return folded_name(found[source.end + (found[source.end].upper == "AS")].name)


def _columns_read(found: Sequence[Token], body: int, visible: str, end: int) -> Iterator[str]:
    """Yield folded columns qualified with the table's name; an asterisk means all.

    And those without a table's name in the list of a SELECT, where that ends at `end`.
    """
    for at in range(body + 1, len(found) - 2):
        before, table, dot, column = (token.text for token in found[at - 1 : at + 3])
        is_last = found[at + 3].text != "." if at + 3 < len(found) else True
        if (
            before != "."
            and dot == "."
            and is_last
            and folded_name(found[at].name) == visible
            and table != "*"
        ):
            yield "*" if column == "*" else folded_name(found[at + 2].name)
    listed = found[body + 1 : end] if end > 0 else ()
    for at, token in enumerate(listed):
        word, after = (
            listed[at - 1].upper if at else ",",
            listed[at + 1].text if at + 1 < len(listed) else ",",
        )
        if token.text == "*" and after == "," and (not at or listed[at - 1].text == ","):
            yield "*"
        if token.kind == "quoted" and word in _BEFORE_OPERANDS and after not in (".", "("):
            yield folded_name(token.name)


_BEFORE_NAMES = frozenset(("TABLE", "VIEW", "REFERENCES"))
_BEFORE_SOURCES = frozenset(("LIKE", "REFERENCES"))
_OPENING = _BEFORE_NAMES | {"RENAME", "TO", ",", "LIKE", "ON", "TRUNCATE"}
"""Words after which `_opens` may find a name."""
_SKIPPED = frozenset(("IF", "NOT", "EXISTS", "TO", "AS", "=", "("))
_PARTS_OF_TABLE = frozenset(("COLUMN", "INDEX", "KEY", "PARTITION"))


def table_names(found: Sequence[Token]) -> list[NameAt]:
    """Return all tables, views and databases that a statement names, in order.

    Without columns, indexes and aliases.

    A view's column that is qualified with database and table counts as a name too.
    """
    if not found:
        return []
    first, second = found[0].upper, found[1].upper if len(found) > 1 else ""
    if second in ("DATABASE", "SCHEMA"):
        at, new = _skip(found, 2), first == "CREATE"
        token = found[at] if at < len(found) else None
        # Without a name ALTER DATABASE begins with an option, for the session's own database.
        if (
            token is None
            or token.kind not in NAMES
            or token.upper in ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT")
            or not (token.kind == "quoted" or new or first == "DROP" or at + 1 < len(found))
        ):
            return []
        return [NameAt(schema=token.name, table="", start=token.start, end=token.end, new=new)]
    is_view = first == "CREATE" and find_words(found, "VIEW", depth=0) > 0
    body = _view_body(found) if is_view else 0
    named = list(_tables(found[: body or None], first))
    if not body:
        return named
    # What a view selects from, and the places where its columns name a table with its database.
    selected, taken = list[NameAt](), set[int]()
    for source in sources(found, body):
        start, last = found[source.at], found[source.at + source.length - 1]
        taken.add(source.at)
        selected.append(
            NameAt(
                schema=start.name if source.length > 1 else "",
                table=last.name,
                start=start.start,
                end=last.end,
                reads=True,
                alias_at=-1 if source.aliased else found[source.end - 1].end,
            )
        )
    # Three parts are a column with its table and database: a table in FROM has at most two.
    for at in range(body, len(found) - 4):
        one, dot, two, point, column = found[at : at + 5]
        are_names = (
            one.kind in NAMES and two.kind in NAMES and (column.kind in NAMES or column.text == "*")
        )
        if are_names and dot.text == point.text == "." and at not in taken:
            selected.append(
                NameAt(
                    schema=one.name,
                    table=two.name,
                    start=one.start,
                    end=two.end,
                    reads=True,
                    qualifies=True,
                )
            )
    return [*named, *sorted(selected, key=lambda name: name.start)]


def _tables(found: Sequence[Token], first: str) -> Iterator[NameAt]:
    # What is replaced may exist already, and then the target's spelling of its name counts.
    creates = first == "CREATE" and find_words(found[:3], "OR", "REPLACE") < 0
    at = 0
    while at < len(found):
        token = found[at]
        if token.upper not in _OPENING:
            at += 1
            continue
        opens, new = _opens(found, at, first)
        at = _skip(found, at + 1) if opens else at + 1
        if (
            not opens
            or at >= len(found)
            or found[at].kind not in NAMES
            or found[at].upper in ("SELECT", "PARTITION")
        ):
            continue
        one, two = found[at], None
        if at + 2 < len(found) and found[at + 1].text == "." and found[at + 2].kind in NAMES:
            two = found[at + 2]
        last = two or one
        yield NameAt(
            schema=one.name if two else "",
            table=last.name,
            start=one.start,
            end=last.end,
            new=new or (creates and token.upper in ("TABLE", "VIEW")),
            reads=token.upper in _BEFORE_SOURCES,
        )
        at += 3 if two else 1


def _opens(found: Sequence[Token], at: int, first: str) -> tuple[bool, bool]:
    """Return whether a name follows the token, and whether the statement creates that name."""
    token, word = found[at], found[at].upper
    following = found[at + 1].upper if at + 1 < len(found) else ""
    if word == "RENAME" and first == "ALTER" and token.depth == 0:
        return following not in _PARTS_OF_TABLE, True
    if word == "TO" and first in ("RENAME", "FLASHBACK"):
        return True, True
    opens = word in _BEFORE_NAMES
    # RENAME TABLE a TO b, c TO d and DROP TABLE a, b; elsewhere a comma separates columns, actions
    # or options.
    if word == ",":
        opens = first in ("RENAME", "DROP") and token.depth == 0
    elif word == "LIKE":
        copies = token.depth == 0 or found[at - 1].text == "("  # elsewhere it compares texts
        opens = first == "CREATE" and find_words(found[:3], "TABLE") > 0 and copies
    # CREATE INDEX i ON t, DROP INDEX i ON t. Elsewhere it belongs to ON UPDATE, ON DELETE or a
    # join.
    elif word == "ON":
        opens = token.depth == 0 and find_words(found[:4], "INDEX") > 0
    # TRUNCATE t. In TRUNCATE TABLE t the name follows TABLE; in ALTER TABLE … TRUNCATE PARTITION no
    # table follows.
    elif word == "TRUNCATE":
        opens = at == 0 and following != "TABLE"
    return opens, False


def _skip(found: Sequence[Token], at: int) -> int:
    """Return the index after words that may separate a keyword from its name."""
    while at < len(found) and found[at].upper in _SKIPPED:
        at += 1
    return at


_NOISE = frozenset(("RENAME", "TABLE", "ALTER", "TO", "AS", "IF", "EXISTS", ";", ","))
_NAMING_OTHERS = frozenset(("RENAME", "LIKE", "REFERENCES", "VIEW"))
"""Words of statements that can touch other tables than their own; a RENAME may be ALTER TABLE a
RENAME TO b.
"""


def parsed(definition: TableDefinition) -> ParsedDdl:
    """Return what a definition's statement says, parsed once and held by the definition."""
    if (held := definition.held) is None:
        held = parse_ddl(definition.query, definition.name)
        # Frozen, but this only remembers what follows from the other fields. Two threads that meet
        # here store equal records.
        object.__setattr__(definition, "held", held)
    return held


def parse_ddl(query: str, own: TableName) -> ParsedDdl:
    """Return what a statement says, in linear time; `own`: the name in its schema file."""
    found = tokens(query)
    if not found:
        return ParsedDdl(own=own, subject=own)
    words = {token.upper for token in found}
    rename = _rename(found, own) if "RENAME" in words else None
    exchanges = "EXCHANGE" in words and has_words(found, "EXCHANGE", "PARTITION")
    drops = "DROP" in words and has_words(found, "DROP", "TABLE")
    return ParsedDdl(
        own=own,
        subject=own if rename is None or rename.new.folded() == own.folded() else rename.new,
        head=tuple(token.upper for token in found[:2]),
        rename=rename,
        names=tuple(table_names(found)),
        # Any other statement touches its own table only, so its words need not be looked at.
        others=frozenset(
            # Every word may be a table's name here. One too many costs a little waiting; one too
            # few would let rows overtake a statement.
            TableName(schema=schema or own.schema, table=table)
            for schema, table, _ in (
                names(found) if exchanges or drops or words & _NAMING_OTHERS else ()
            )
        ),
        exchanges_partition=exchanges,
        has_references="REFERENCES" in words,
        makes_global_index=makes_global_index(query),
    )


def _rename(found: Sequence[Token], own: TableName) -> Rename | None:
    at = find_words(found, "RENAME", depth=0)
    # These rename a part of the table; a later action of the same ALTER may still rename the table
    # itself.
    while 0 <= at < len(found) - 1 and found[at + 1].upper in ("COLUMN", "INDEX", "KEY"):
        at = find_words(found, "RENAME", depth=0, start=at + 1)
    if (
        at < 0
        or not has_words(found[:2], found[0].upper, "TABLE")
        or found[0].upper not in ("RENAME", "ALTER")
    ):
        return None
    # ALTER TABLE a RENAME b has its old name before the word, RENAME TABLE a TO b has both names
    # after it.
    before, after = _named(found[:at]), _named(found[at:])
    pair = [*before[:1], *after[:1]] if before else after
    if len(pair) < 2:  # noqa: PLR2004 - an old and a new name
        return None
    (old_schema, old), (new_schema, new) = pair[0], pair[-1]
    return Rename(
        old=TableName(schema=old_schema or own.schema, table=old),
        new=TableName(schema=new_schema or own.schema, table=new),
        from_anywhere=bool(new_schema) and not old_schema,
    )


def _named(found: Sequence[Token]) -> list[tuple[str, str]]:
    """Return (schema, table) of each name in a statement that renames a table."""
    return [
        (schema, table)
        for schema, table, _ in names([token for token in found if token.upper not in _NOISE])
    ]


Existing = Mapping[TableName, TableName]
"""Folded name → the name as the target spells it, for tables and databases (empty table) that exist
there.
"""


def looked_up(definition: TableDefinition) -> set[TableName]:
    """Return the folded names whose spelling matters to `with_real_names`."""
    own = definition.name.folded()
    wanted = {own, replace(own, table="")}
    for name in parsed(definition).names:
        schema = folded_name(name.schema) or own.schema
        wanted |= {
            TableName(schema=schema, table=folded_name(name.table)),
            TableName(schema=schema, table=""),
        }
    return wanted


def with_homes(
    definition: TableDefinition, existing: Existing, homes: Mapping[NameAt, TableName]
) -> TableDefinition:
    """Return the definition with open names qualified by `homes`, the tables they mean.

    Others stay as they are.
    """
    real = {name: existing.get(home.folded(), home) for name, home in homes.items()}
    edits = [
        (name.start, name.end, f"{quote(home.schema)}.{quote(home.table)}")
        for name, home in real.items()
    ]
    return (
        replace(definition, query=replace_spans(definition.query, edits)) if edits else definition
    )


def with_real_names(definition: TableDefinition, existing: Existing) -> TableDefinition:
    """Return the definition with its names as the target spells them, in the query too.

    Names that the statement creates keep their spelling.
    """
    own = definition.name
    schema = _real_schema(own.schema, existing)
    named = parsed(definition).names
    edits = [(n.start, n.end, text) for n in named if (text := _respelled(n, own, existing))]
    real = existing.get(own.folded())
    # A new table is spelled as the source spells it, even if one that differs in case is there
    # until the statement runs.
    creates = any(name.new and folded_name(name.table) == folded_name(own.table) for name in named)
    name = TableName(
        schema=schema,
        table=real.table if real is not None and own.table and not creates else own.table,
    )
    if name == own and not edits:
        return definition
    return replace(definition, name=name, query=replace_spans(definition.query, edits))


def _real_schema(schema: str, existing: Existing) -> str:
    real = existing.get(TableName(schema=folded_name(schema), table=""))
    return schema if real is None else real.schema


def _respelled(name: NameAt, own: TableName, existing: Existing) -> str:
    """Return the replacement for a name; empty if the name can stay."""
    if not name.table:
        schema = _real_schema(name.schema, existing)
        return "" if name.new or schema == name.schema else quote(schema)
    # It stays without a database: only the spelling of the table may be another.
    if not name.schema:
        real = existing.get(TableName(schema=own.schema, table=name.table).folded(), own)
        return (
            quote(real.table)
            if not name.new and real is not own and real.table != name.table
            else ""
        )
    schema = _real_schema(name.schema, existing)
    there = existing.get(TableName(schema=name.schema, table=name.table).folded())
    table = name.table if name.new or there is None else there.table
    return "" if (schema, table) == (name.schema, name.table) else f"{quote(schema)}.{quote(table)}"
