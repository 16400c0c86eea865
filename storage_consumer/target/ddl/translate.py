"""Turn a DDL of the source into a statement for this target, or the reason to run none. Pure.

The original text runs whenever it can. `DIFFERENCES` lists what is added or left out, and why.

First a statement gets the form that the rules expect: TiCDC writes some backslashes without an
escape before them, and TiDB's grammar is wider than MySQL's. The options of a column come in any
order, ADD COLUMN takes a list with indexes in it, and its parser writes IF EXISTS into comments of
its own. What all servers read alike stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storage_consumer.decode.values import is_known, zone_caveat
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn, TableDefinition, TableName, folded_name
from storage_consumer.plan.steps import DdlStep
from storage_consumer.rows.fitting import TargetTable
from storage_consumer.sql.gate import refuse_foreign
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import INDEX_WORDS, Edit, column_at, statement_of
from storage_consumer.sql.tokens import (
    NAMES,
    Piece,
    Token,
    elements,
    find_words,
    has_words,
    heeded,
    heeds_comment,
    pieces,
    quote,
    replace_spans,
    tokens,
)
from storage_consumer.target.ddl.catalogue import (
    all_edits,
    turns_on_soft_delete,
    without_soft_delete,
)
from storage_consumer.target.ddl.edits import Targeted, in_column
from storage_consumer.target.existing_names import PartNames, is_far

_MEMBERS = ("ENUM", "SET")
_INDEXES = (*INDEX_WORDS, "UNIQUE", "PRIMARY", "FULLTEXT", "CONSTRAINT")
_VIEWS = frozenset(("VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"))
"""What follows CREATE for a view: its SELECT has no comments, but may have columns of that name."""
_LONGEST = 8
"""Tokens that tell what a part is: ALTER TABLE, a qualified name, ADD, and the kind of index."""


def escaped(query: str) -> str:
    """Return the statement with an escape before each backslash that TiCDC wrote as it is.

    TiCDC escapes them in defaults, expressions, partitions' values and columns' comments, but
    neither in the comments of tables, partitions and indexes nor in the members of ENUM and SET.
    Its keywords are upper case: text that begins otherwise is not its own and stays as it is.
    """
    if "\\" not in query:
        return query
    before, raw = _Before(query), set[int]()

    # `pieces` asks when a string begins: where it ends depends on whether a backslash before a
    # quote escapes that.
    def is_raw(found: Sequence[Piece]) -> bool:
        if before.makes_raw(found):
            raw.add(found[-1][2])
        return bool(found) and found[-1][2] in raw

    return "".join(
        query[start:end].replace("\\", "\\\\")
        if start in raw and kind == "string"
        else query[start:end]
        for kind, start, end in pieces(query, is_raw)
    )


@dataclass(slots=True)
class _Before:
    """What the tokens up to a place say about a string there; each token is looked at only once."""

    query: str
    seen: int = 0
    """How many pieces were looked at."""
    found: list[Token] = field(default_factory=list)
    openings: list[int] = field(default_factory=list)
    """Indexes of the open parentheses."""
    firsts: list[int] = field(default_factory=lambda: [0])
    """Index of the current part's first token: outside parentheses, then for each open one."""

    def makes_raw(self, before: Sequence[Piece]) -> bool:
        """Return whether backslashes in a string that comes next stand for themselves."""
        for kind, start, end in before[self.seen :]:
            if kind in ("space", "comment"):
                continue
            text = self.query[start:end]
            if kind == "symbol" and text == ")" and self.openings:
                self.openings.pop()
                self.firsts.pop()
            upper = text.upper() if kind in ("word", "symbol") else ""
            self.found.append(Token(kind, text, start, end, len(self.openings), upper))
            if kind == "symbol" and text == "(":
                self.openings.append(len(self.found) - 1)
                self.firsts.append(len(self.found))
            elif kind == "symbol" and text == ",":
                self.firsts[-1] = len(self.found)
        self.seen = len(before)
        found = self.found
        # TiCDC writes keywords in upper case; any other text was not written by its parser and
        # escapes as it should.
        if len(found) < 2 or not found[0].text.isupper():  # noqa: PLR2004 - a word and what follows it
            return False
        if found[0].upper == "CREATE" and found[1].upper in _VIEWS:
            return False
        # Without an equals sign it is a column's comment, which is escaped, or an index's, which is
        # not.
        if found[-1].upper == "COMMENT":
            return self._defines_index()
        # With one it is the comment of a table or a partition.
        return (found[-2].upper, found[-1].text) == ("COMMENT", "=") or self._is_member()

    def _is_member(self) -> bool:
        """Return whether the string is a member of an ENUM or SET."""
        if self.found[-1].text not in ("(", ",") or not self.openings:
            return False
        opening = self.openings[-1]
        return (
            # A column's name stands before its type; a clause that begins with SET has none there.
            opening > 1
            and self.found[opening - 1].upper in _MEMBERS
            and self.found[opening - 2].kind in ("quoted", "word")
        )

    def _defines_index(self) -> bool:
        """Return whether the statement's part around the string defines an index."""
        part = self.found[self.firsts[-1] : self.firsts[-1] + _LONGEST]
        # Only what stands before the word COMMENT shows what is defined.
        part = part[: len(self.found) - 1 - self.firsts[-1]]
        if has_words(part[:2], "ALTER", "TABLE"):
            part = part[5 if len(part) > 3 and part[3].text == "." else 3 :]  # noqa: PLR2004 - a database's name and a dot more
        words = [token.upper for token in part[:2]] + [""] * 2
        return words[1 if words[0] in ("ADD", "CREATE") else 0] in _INDEXES


_CONDITION = re.compile(r"/\*T! {0,3}(IF (?:NOT )?EXISTS) {0,3}\*/")
"""The comment as TiDB's parser writes it; of bounded length, so that the search is linear."""


def arranged(query: str) -> tuple[str, list[str]]:
    """Return the statement in that form, and the names of the differences that this resolved."""
    notes: list[str] = []
    for name, rule in (
        ("IF EXISTS", unfolded),
        ("list of columns", _lists),
        ("order of options", _orders),
    ):
        text = rule(query)
        notes += [name] if text != query else []
        query = text
    return query, notes


def unfolded(query: str) -> str:
    """Take IF EXISTS and IF NOT EXISTS out of TiDB's comments, except in strings."""
    edits = [
        (start, end, f" {found[1]} ")
        for kind, start, end in (pieces(query) if "/*T!" in query else ())
        if kind == "comment" and (found := _CONDITION.fullmatch(query, start, end))
    ]
    return replace_spans(query, edits)


def _lists(query: str) -> str:
    """Turn ADD COLUMN (a, b, INDEX (a)) into one action each, if the list has more than columns."""
    statement, edits = statement_of(query), list[Edit]()
    found, starts = statement.tokens, {first for first, _ in statement.parts}
    for first, last in statement.find("ADD [COLUMN] [IF NOT EXISTS] ( )", depth=0):
        if first not in starts or statement.head != ("ALTER", "TABLE"):
            continue
        at = find_words(found, "(", start=first)
        inside = elements(found, at, last - 1)
        # The words before the parenthesis, with IF NOT EXISTS, belong to each column of the list.
        verb = query[found[first].start : found[at].start]
        columns = [column_at(found[a:b]) == 0 for a, b in inside]
        # A list of nothing but columns is read alike by all servers.
        if all(columns) and not has_words(found[first:at], "EXISTS"):
            continue
        actions = [
            (verb if is_column else "ADD ") + query[found[a].start : found[b].start].strip()
            for (a, b), is_column in zip(inside, columns, strict=True)
        ]
        edits.append(statement.edit(first, last, ", ".join(actions)))
    return replace_spans(query, edits)


def _orders(query: str) -> str:
    """Put GENERATED ALWAYS AS directly after the type and its collation."""
    statement, edits = statement_of(query), list[Edit]()
    found = statement.tokens
    for column in statement.columns:
        # VIRTUAL or STORED belongs to the expression: what moves goes behind it.
        generated = in_column(statement, column, "GENERATED ALWAYS AS ( ) [VIRTUAL|STORED]")
        if not generated:
            continue
        at, end = generated[0]
        behind = min(statement.type_end(column), at)
        collations = in_column(statement, column, "COLLATE any", behind - column.first)
        # In order already: the type, COLLATE with its name, the expression.
        if (behind == at and not collations) or (collations == [(behind, at)] and column.is_text):
            continue
        taken = [statement.edit(*each) for each in collations]
        start, stop = found[behind].start, found[at].start
        early = replace_spans(
            query[start:stop], [(a - start, b - start, "") for a, b, _ in taken if a < stop]
        ).strip()
        # Only a text may have a collation, and only one.
        edits.append(
            (
                start,
                stop,
                "".join(f"{query[a:b]} " for a, b, _ in taken[:1]) if column.is_text else "",
            )
        )
        # Collations before the expression are inside the span above, which is replaced as a whole.
        edits += [each for each in taken if each[0] > stop]
        if early:
            edits.append((found[end - 1].end, found[end - 1].end, f" {early}"))
    return replace_spans(query, edits)


_TIMESTAMP = "TIMESTAMP"


def refuse_uncertain_moments(
    definition: TableDefinition,
    query: str,
    zone: str,
    describe: Callable[[Iterable[TableName]], Mapping[TableName, TargetTable]],
) -> None:
    """Raise `NotReplicable` if times need more than one offset, in a zone with daylight saving.

    These are texts in calls of UNIX_TIMESTAMP, as in the borders of partitions, and the values of a
    column that becomes a TIMESTAMP or stops being one. Defaults of columns are not among them: the
    schema file has them in UTC (see `column_rules.timestamps`). `describe` returns the target's
    tables. One recent year decides whether a zone has daylight saving time.
    """
    if not zone_caveat(zone):
        return
    statement = statement_of(query)
    found = [
        f"UNIX_TIMESTAMP({value.text})"
        for _, last in statement.find("UNIX_TIMESTAMP (")
        for value in statement.tokens[last : last + 1]
        if value.kind == "string"
    ]
    # Only these convert values that are there.
    changed = [
        each for each in statement.columns if each.verb in ("MODIFY", "CHANGE") and not found
    ]
    there = describe([definition.name]).get(definition.name.folded()) if changed else None
    before = {folded_name(c.name): c.data_type.upper() for c in there.columns} if there else {}
    after = {folded_name(column.name): column.type for column in definition.columns}
    for column in changed:
        old, new = (
            before.get(folded_name(column.former), ""),
            after.get(folded_name(column.name), ""),
        )
        # A TIMESTAMP is stored in UTC, all other types as they read: passing from one to the other
        # needs the zone for each value.
        if old and new and (old == _TIMESTAMP) != (new == _TIMESTAMP):
            found.append(f"values of {column.name} that are converted from {old} to {new}")
    if found:
        raise NotReplicable(
            f"{definition.name}: the DDL with version {definition.version} ({definition.path}) has {found[0]}, in {zone}, "
            "which the target does not know by its name; with one offset for the whole year some would become other "
            "times. Load the target's time zones (mysql_tzinfo_to_sql), and start again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlAction:
    """What to do for one DDL."""

    statement: str
    """The statement to run; empty if there is nothing to do."""
    schema: str
    """Default database for the statement; empty for none."""
    notes: tuple[str, ...] = ()
    """What was changed in the original text, or why it does not run."""


def action_for(
    definition: TableDefinition,
    server_type: str,
    collation: str | None,
    names: PartNames | None = None,
    *,
    zone: str = "UTC",
    source_collation: str = "utf8mb4_bin",
) -> DdlAction:
    """Return what to do for a statement on a server type (``mariadb``, ``mysql``, ``tidb``).

    `collation` is the default collation of the statement's database on the target, None if it is
    unknown or the database does not exist. `names` are the names of its table's parts on the
    target, None if they were not asked for. `zone` is the time zone of the session that will run
    it. `source_collation` is the default collation of its database at the source. Raise
    `NotReplicable` for what such a server cannot hold.
    """
    stored = stored_text(definition)
    # Before anything reads the text: a backslash without its escape would move the end of a string.
    query = escaped(stored)
    notes = ["backslash"] if query != stored else []
    refuse_what_only_tidb_holds(definition, server_type)
    if (without := without_soft_delete(query)) != query:
        query, notes = without, [*notes, "attribute of TiDB"]
    found = tokens(query)
    # What looks bare may have its only action in a comment that TiDB alone obeys.
    if _is_bare(found) and not (server_type == "tidb" and heeds_comment(query)):
        note = "attribute of TiDB" if heeds_comment(stored) else "an ALTER TABLE without any action"
        return DdlAction(statement="", schema="", notes=(note,))
    schema = definition.session_database
    # Rules look for closing parentheses, so they cannot read such a text; the server's answer is
    # the better error.
    if not found or not _is_whole(found):
        return DdlAction(statement=query, schema=schema)
    # The server would run these, but then hold other rows than the source: the table stops.
    if server_type == "mariadb" and names is not None and names.fractions:
        raise NotReplicable(
            f"{definition.name}: the DDL with version {definition.version} ({definition.path}) converts texts with "
            f"fractions or exponents to integers ({', '.join(sorted(names.fractions))}), which the source rounds and "
            "MariaDB truncates. Round them in the target first, for example by ALTER TABLE … MODIFY … DECIMAL(65,0), "
            "and start again"
        )
    if server_type != "tidb" and names is not None and names.scattered:
        raise NotReplicable(
            f"{definition.name}: the DDL with version {definition.version} ({definition.path}) takes the rows of a "
            "partition by KEY, or by HASH with values of NULL: TiDB puts other rows into it than MySQL and MariaDB do, "
            "so the target would lose other rows than the source did. Manually delete the rows that the source no longer "
            "had at that version, and skip the statement"
        )
    if server_type != "tidb":
        # Before the rules: they expect each clause in the one place where all servers want it.
        query, arrangements = arranged(query)
        notes += arrangements
    statement = Targeted(
        text=query,
        tokens=tokens(query),
        collation=collation,
        names=names,
        table=definition.name.table,
        stored=definition.columns,
        zone=zone,
        source_collation=source_collation,
    )
    edits, changes = all_edits(statement, server_type)
    # Arranging and a rule may name the same difference.
    notes = list(dict.fromkeys(changes + notes))
    return DdlAction(
        statement=replace_spans(query, edits).strip(), schema=schema, notes=tuple(notes)
    )


def _is_whole(found: Sequence[Token]) -> bool:
    """Return whether quotes and parentheses are closed; the server refuses a text where not."""
    open_ones = 0
    for token in found:
        open_ones += (token.text == "(") - (token.text == ")") if token.kind == "symbol" else 0
        # A quote that stands alone as a token never found its end.
        if open_ones < 0 or token.text in ("'", '"', "`"):
            return False
    return open_ones == 0


def _is_bare(found: Sequence[Token]) -> bool:
    """Return whether nothing follows the name of an ALTER TABLE or ALTER DATABASE."""
    head = tuple(token.upper for token in found[:2])
    if head in (("ALTER", "DATABASE"), ("ALTER", "SCHEMA")):
        return len(found) <= 3  # noqa: PLR2004 - with its name
    if len(found) not in (3, 5) or head != ("ALTER", "TABLE"):
        return False
    return len(found) == 3 or found[3].text == "."  # noqa: PLR2004 - with the database's name before the table's


def stored_text(definition: TableDefinition) -> str:
    """Return the text of a statement without the semicolon that the new architecture may append."""
    return definition.query.strip().removesuffix(";").strip()


def refuse_what_may_not_run(step: DdlStep, server_type: str) -> None:
    """Refuse, before any query, a statement that TiCDC never writes or that only TiDB can run.

    The error is `StatementRefused` or `NotReplicable`. A table that is created from its columns has
    no statement to check.
    """
    refuse_what_only_tidb_holds(step.definition, server_type)
    # As the bucket has it, before the names of routes and of the target come into the text.
    if not step.ensure:
        refuse_foreign(
            step.origin.definition, escaped(stored_text(step.origin.definition)), server_type
        )


_RECOVERED = {
    "TABLE": "a dropped or truncated table",
    "DATABASE": "a dropped database",
    "SCHEMA": "a dropped database",
    "CLUSTER": "the state of an earlier time",
}


def refuse_what_only_tidb_holds(definition: TableDefinition, server_type: str) -> None:
    """Raise `NotReplicable`, before any query, for a name or statement that only TiDB takes.

    FLASHBACK CLUSTER runs on no server: it would take the whole target back, including our own
    state and other databases. Nor does a table run whose deleted rows stay, which its columns do
    not show: in the files they are rows like any others.
    """
    head = parsed(definition).head
    if head == ("CREATE", "TABLE") and turns_on_soft_delete(heeded(definition.query)):
        raise NotReplicable(
            f"{definition.name}: the table of the DDL with version {definition.version} ({definition.path}) keeps its deleted "
            "rows at the source for a while (SOFTDELETE, ACTIVE_ACTIVE), where TiDB hides them. This program does not support "
            "that: in the target they would be seen. To have them there all the same, create the table by `ddl replace` with "
            "the columns _tidb_origin_ts and _tidb_softdelete_time written out, and read it WHERE _tidb_softdelete_time IS NULL"
        )
    # MariaDB refuses such a name, MySQL silently changes it to question marks. Most texts have no
    # such character at all.
    found = tokens(definition.query) if server_type != "tidb" and is_far(definition.query) else ()
    names = (
        definition.name.schema,
        definition.name.table,
        *(t.name for t in found if t.kind in NAMES),
    )
    if server_type != "tidb" and (far := next((name for name in names if is_far(name)), "")):
        raise NotReplicable(
            f"{definition.name}: the name {far!r} has a character beyond U+FFFF, which MySQL and MariaDB do not allow "
            "in names; only TiDB can hold this table. Use TiDB as the target, or rename it at the source "
            f"({definition.path})"
        )
    verb, what = (*head, "", "")[:2]
    if (
        verb in ("RECOVER", "FLASHBACK")
        and what in _RECOVERED
        and (server_type != "tidb" or what == "CLUSTER")
    ):
        raise NotReplicable(
            f"{definition.name}: {verb} {what} with version {definition.version} brought {_RECOVERED[what]} back "
            f"at the source; the rows are in no file, and only TiDB can do this ({definition.path}). Reload what it "
            "names as of that version"
        )


# a table from a schema file without a statement

_LENGTHS = frozenset(("CHAR", "VARCHAR", "BINARY", "VARBINARY", "BIT"))
_SCALES = frozenset(("DATETIME", "TIMESTAMP", "TIME"))


def create_from_columns(definition: TableDefinition, escape: Callable[[str], str]) -> str:
    """Return CREATE TABLE for a structure without a statement.

    A schema file has no index but the primary key, no reliable defaults, no charset, and no
    comment. Raise `NotReplicable` for a column whose type it does not fully describe.
    """
    # TiDB's hidden columns belong to expression indexes, of which a schema file says nothing.
    columns = [
        _column(definition, column, escape)
        for column in definition.columns
        if not column.name.startswith("_V$_")
    ]
    key = [quote(column.name) for column in definition.columns if column.is_pk]
    parts = columns + ([f"PRIMARY KEY ({', '.join(key)})"] if key else [])
    # The files do not say which charset the source has; this is TiDB's default.
    options = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    return f"CREATE TABLE {quote(definition.name.table)} ({', '.join(parts)}) {options}"


def _column(definition: TableDefinition, column: TableColumn, escape: Callable[[str], str]) -> str:
    """Return one column's definition."""
    if not is_known(column):  # the type becomes part of a statement: no other text may
        raise NotReplicable(
            f"{definition.name}.{column.name}: {definition.path} gives the column the type {column.type[:40]!r}, "
            "which TiDB does not have. Find out who wrote the file, or create the table manually and start again"
        )
    text = column.type
    if column.type in ("ENUM", "SET"):
        if not column.elements:
            message = f"{definition.name}.{column.name}: {definition.path} does not list the members of this {column.type}"
            raise NotReplicable(message)
        text += "(" + ",".join(f"'{escape(member)}'" for member in column.elements) + ")"
    elif column.type in _LENGTHS and column.precision is not None:
        text += f"({column.precision})"
    elif column.type in _SCALES and column.scale:
        text += f"({column.scale})"
    elif column.type == "DECIMAL":
        text += f"({column.precision or 10},{column.scale or 0})"
    elif column.type == "VAR_STRING":
        text = f"VARCHAR({column.precision or 255})"
    # The files write BIT UNSIGNED and YEAR UNSIGNED, where the word says nothing.
    if column.unsigned and column.type not in ("BIT", "YEAR"):
        text += " UNSIGNED"
    # Explicitly NULL: without the word, an older server may make a TIMESTAMP NOT NULL.
    null = " NOT NULL" if not column.nullable or column.is_pk else " NULL"
    return f"{quote(column.name)} {text}{null}"
