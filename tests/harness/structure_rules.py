"""Is a server's structure what it has to be? Held against a recording of the source, and against a server of its own kind.

The source is TiDB: the columns that it showed are compared with what the target shows, under a list of equivalences between
dialects, each of which states what it covers. A server of the target's kind has to show the same, without exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.harness.corpora import GoldenColumn, GoldenTable
from tests.harness.reference import Moment
from tests.harness.structures import Fact, Structure, tables_of

EQUIVALENCES = {
    "display width": "MySQL and newer TiDB show no width of integers and years, which means nothing for values.",
    "json": "MariaDB's JSON is a LONGTEXT with a check.",
    "vector": "TiDB's VECTOR goes to a LONGTEXT column, since MariaDB has none and MySQL's is another one.",
    "key of a table without primary key": "MySQL and MariaDB show the first unique index over NOT NULL columns as PRI.",
    "generated NOT NULL": "MariaDB takes no NOT NULL on a generated column, which shows as nullable then.",
    "generated primary key": "MariaDB takes no primary key on a generated column; a unique one stands in.",
    "default expression": "MySQL says in EXTRA that a default is an expression, CURRENT_TIMESTAMP included; MariaDB never does.",
    "current timestamp": "MariaDB writes CURRENT_TIMESTAMP in EXTRA as a function in lower case.",
}
"""Name → what a column of the source and the same one of a target may differ in, and why."""

_WIDTH = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)(?! unsigned zerofill)")
_EXPRESSION = re.compile(r"^DEFAULT_GENERATED ?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One property of a column, on both sides."""

    kind: str
    """Of the target."""
    source: GoldenColumn
    has_primary_key: bool
    """Whether the table has one at the source."""
    what: str
    was: str
    """At the source."""
    is_: str
    """At the target."""

    @property
    def generated(self) -> bool:
        """Whether the column is a generated one."""
        return self.source.extra.endswith(" GENERATED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out."""

    differences: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    """Names of the equivalences without which there were more."""
    facts: int = 0
    """How many properties were compared."""
    left_out: tuple[str, ...] = ()
    """What was not compared, each with the reason."""

    def __str__(self) -> str:
        """As a table shows it that says "equal" before."""
        text = f", {self.facts} properties alike"
        text += f" under: {', '.join(sorted(self.used))}" if self.used else ""
        return text + "".join(f"; not compared: {one}" for one in self.left_out)

    def __add__(self, other: Comparison) -> Comparison:
        """Both."""
        return Comparison(
            differences=self.differences + other.differences,
            used=self.used | other.used,
            facts=self.facts + other.facts,
            left_out=tuple(dict.fromkeys(self.left_out + other.left_out)),
        )


def _display_width(pair: Pair) -> bool:
    boolean = pair.was.startswith("tinyint(1)")
    return pair.kind != "mariadb" and pair.what == "type" and not boolean and _WIDTH.sub(r"\1", pair.was) == pair.is_


def _expression(pair: Pair) -> bool:
    return pair.what == "extra" and _EXPRESSION.sub("", pair.was) == _EXPRESSION.sub("", pair.is_)


_RULES: dict[str, Callable[[Pair], bool]] = {
    "display width": _display_width,
    "json": lambda pair: pair.kind == "mariadb" and (pair.what, pair.was, pair.is_) == ("type", "json", "longtext"),
    "vector": lambda pair: (
        pair.kind != "tidb" and pair.what == "type" and pair.was.startswith("vector") and pair.is_ == "longtext"
    ),
    "key of a table without primary key": lambda pair: (
        pair.kind != "tidb" and pair.what == "key" and not pair.has_primary_key and pair.is_ == "PRI"
    ),
    "generated NOT NULL": lambda pair: (
        pair.kind == "mariadb" and pair.generated and (pair.what, pair.was, pair.is_) == ("nullable", "NO", "YES")
    ),
    "generated primary key": lambda pair: (
        pair.kind == "mariadb" and pair.generated and (pair.what, pair.was, pair.is_) == ("key", "PRI", "UNI")
    ),
    "default expression": lambda pair: pair.kind != "tidb" and _expression(pair),
    "current timestamp": lambda pair: (
        pair.kind == "mariadb"
        and pair.what == "extra"
        and re.fullmatch(r"on update current_timestamp\(\d?\)", pair.is_) is not None
        and pair.was.lower().removesuffix("()") == pair.is_.replace("()", "")
    ),
}


def equivalence(pair: Pair) -> str:
    """Name of the equivalence that covers a property, empty where none does."""
    return next((name for name, holds in _RULES.items() if holds(pair)), "")


def against_source(found: Structure, golden: Iterable[GoldenTable], kind: str, left_out: frozenset[str]) -> Comparison:
    """The columns of a target of this kind against what the source showed; `left_out`: tables that are not compared."""
    differences: list[str] = []
    used: set[str] = set()
    facts = 0
    for table in golden:
        if table.name in left_out:
            continue
        names = ", ".join(column.name for column in table.columns)
        if (shown := found.get(Fact(table.name, "", "columns"), "no such table")) != names:
            differences.append(f"{table.name}: columns are {shown!r}; the source has {names!r}")
            continue
        for pair in _pairs(found, table, kind):
            facts += 1
            if pair.was == pair.is_:
                continue
            if name := equivalence(pair):
                used.add(name)
            else:
                where = f"{table.name}: column {pair.source.name}: {pair.what}"
                differences.append(f"{where} is {pair.is_!r}; the source has {pair.was!r}")
    return Comparison(differences=tuple(differences), used=frozenset(used), facts=facts)


def _pairs(found: Structure, table: GoldenTable, kind: str) -> Iterable[Pair]:
    for column in table.columns:
        shown = {
            "type": column.type,
            "nullable": "YES" if column.nullable else "NO",
            "key": column.key,
            "extra": column.extra,
        }
        for what, was in shown.items():
            yield Pair(
                kind=kind,
                source=column,
                has_primary_key=bool(table.primary_key),
                what=what,
                was=was,
                is_=found[Fact(table.name, f"column {column.name}", what)],
            )


def against_reference(found: Structure, reference: Moment, left_out: frozenset[str]) -> Comparison:
    """The whole structure against that of a server of the same kind; `left_out`: what is not compared, by folded names.

    Where the reference refused a statement, what differs in its tables is not a difference, and each such property is told.
    """
    differences: list[str] = []
    told: list[str] = []
    facts = 0
    differing: set[str] = set()
    expected = reference.structure
    lacking = dict.fromkeys(tables_of(expected) - tables_of(found), "the target")
    lacking |= dict.fromkeys(tables_of(found) - tables_of(expected), "the reference")
    for fact in sorted(found.keys() | expected.keys(), key=lambda fact: (fact.table, fact.what == "definition", fact)):
        if fact.table.casefold() in left_out or (fact.what == "definition" and fact.table in differing):
            continue
        facts += 1
        is_, was = found.get(fact, "not there"), expected.get(fact, "not there")
        if is_ == was or (fact.table in lacking and fact.table in differing):
            continue
        differing.add(fact.table)
        text = f"{fact} is {is_!r}; the reference has {was!r}"
        if fact.table in lacking:
            text = f"{fact.table} is not at {lacking[fact.table]}"
        if refusals := reference.refused.get(fact.table.casefold()):
            told.append(f"{text}, which refused {', '.join(map(str, refusals))}")
        else:
            differences.append(text)
    return Comparison(differences=tuple(differences), used=reference.by_hand, facts=facts, left_out=tuple(told))
