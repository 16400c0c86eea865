"""TiCDC's table filter: rules such as ``shop.*``, ``!shop.items``, ``/^s/.t?`` on 1-2 parts.

The last rule that fits decides, and a name that no rule fits is excluded. Excluding rules (``!``)
therefore follow an including one.

Column selectors speak it too: a selector's matcher is a list of rules for tables
(``schema.table``), and its columns are rules for one name. They say which columns TiCDC's new
architecture writes for a table. Schema files list all of them nevertheless. The program's own
filter and routes, from flags, environment or TOML, have the syntax of TiCDC's ``[filter]`` and
dispatchers. Flags and environment variables give a table of the TOML file as an inline table:
``{matcher = ["shop.*"], target-schema = "x"}``.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from storage_consumer.config.parsers import did_you_mean, why_reserved
from storage_consumer.config.settings import (
    ColumnSelector,
    EventFilter,
    LeftOut,
    Route,
    Selecting,
    Upstream,
)
from storage_consumer.errors import ConfigError
from storage_consumer.model import CommitRange, DdlKind, TableName
from storage_consumer.tso import parse_instant

_TOKEN = re.compile(
    r"""
      (?P<escaped> \\ (?P<sign>[^0-9A-Za-z]) )
    | (?P<many> \* )
    | (?P<one> \? )
    | \[ (?P<negated>!?) (?P<class> (?: \\[^0-9A-Za-z] | [^\\\]] )+ ) \]
    | (?P<plain> [$_0-9A-Za-z\u0080-\U0010ffff] )
    """,
    re.VERBOSE,
)
_DELIMITED = {'"': re.compile(r'"((?:""|[^"])+)"'), "`": re.compile("`((?:``|[^`])+)`")}
_EXPRESSION = re.compile(r"/((?:\\.|[^/])+)/")
_EVERY_NAME = r"\A(?s:.*)\Z"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule."""

    taken_in: bool
    patterns: tuple[re.Pattern[str], ...]
    """One pattern for each part of a name."""
    schema: str
    """The first part if it is a plain name; empty if it is a pattern."""

    def fits(self, name: tuple[str, ...]) -> bool:
        # An expression between slashes may match anywhere; every other pattern has its own anchors.
        return all(pattern.search(part) for pattern, part in zip(self.patterns, name, strict=True))

    @property
    def takes_every_table(self) -> bool:
        """Whether its last part is ``*``."""
        return self.patterns[-1].pattern == _EVERY_NAME


class TableRules:
    """A list of rules; the last one that fits a name decides."""

    def __init__(self, rules: tuple[_Rule, ...]) -> None:
        """Hold the rules; build one with `table_rules`."""
        self._rules = rules

    def matches(self, *name: str) -> bool:
        """Return whether the rules include a name, given in its parts."""
        return next((rule.taken_in for rule in reversed(self._rules) if rule.fits(name)), False)

    def matches_schema(self, schema: str) -> bool:
        """Return whether some table of this schema may be included."""
        for rule in reversed(self._rules):
            # An exclusion decides for the whole schema only if it takes every table of it.
            if rule.patterns[0].search(schema) and (rule.taken_in or rule.takes_every_table):
                return rule.taken_in
        return False

    def named_schemas(self) -> tuple[str, ...]:
        """Return the schemas that the rules include by name, without a pattern."""
        named = dict.fromkeys(rule.schema for rule in self._rules if rule.taken_in and rule.schema)
        return tuple(schema for schema in named if self.matches_schema(schema))

    def covers_schema(self, schema: str) -> bool:
        """Return whether every table of this schema is included, whatever its name."""
        for rule in reversed(self._rules):
            # Reversed: any exclusion in the schema spoils it, only an inclusion of all covers it.
            if rule.patterns[0].search(schema) and (rule.takes_every_table or not rule.taken_in):
                return rule.taken_in
        return False


@lru_cache(maxsize=256)
def table_rules(texts: tuple[str, ...], *, parts: int = 2, case: bool = False) -> TableRules:
    """Return the rules of these texts, for names with `parts` parts; `case`: it matters.

    Raises ValueError, which names the rule, for one that cannot be read.
    """
    return TableRules(
        tuple(rule for text in texts for rule in _rule(text.strip(" \t"), parts, case=case))
    )


def _rule(text: str, parts: int, *, case: bool) -> Iterator[_Rule]:
    """Yield one rule, or none for a comment."""
    if not text or text.startswith("#"):
        return
    if text.startswith("@"):
        raise _error(text, "rules in a file of TiCDC's host cannot be read here; write them out")
    # Only one mark counts: a second one is an error.
    taken_in = not text.startswith("!")
    place, patterns, names = 0 if taken_in else 1, [], []
    for part in range(parts):
        if part:
            if text[place : place + 1] != ".":
                raise _error(text, "a dot is missing between schema and table")
            place += 1
        pattern, name, place = _pattern(text, place)
        try:
            # Without case unless the changefeed asks for it, as in TiCDC.
            patterns.append(re.compile(pattern, 0 if case else re.IGNORECASE))
        except re.error as error:
            raise _error(text, f"the regular expression cannot be read: {error}") from error
        names.append(name)
    if place != len(text):
        raise _error(text, f"unexpected {text[place:]!r}")
    yield _Rule(taken_in, tuple(patterns), names[0])


def _pattern(text: str, place: int) -> tuple[str, str, int]:
    """Return the expression of the pattern at `place`, the name if it is plain, and the end."""
    sign = text[place : place + 1]
    if sign == "/":
        if (found := _EXPRESSION.match(text, place)) is None:
            raise _error(text, "the regular expression is not closed")
        return found[1], "", found.end()
    if sign in _DELIMITED:
        if (found := _DELIMITED[sign].match(text, place)) is None:
            raise _error(text, "the quoted name is not closed")
        name = found[1].replace(sign * 2, sign)
        return rf"\A{re.escape(name)}\Z", name, found.end()
    pattern, signs = [], []
    while found := _TOKEN.match(text, place):
        if found["many"]:
            piece = ".*"
        elif found["one"]:
            piece = "."
        elif found["class"]:
            inside = found["class"].replace("[", r"\[")
            # The language negates a class by "!"; a leading "^" would negate it in Python only.
            mark = "^" if found["negated"] else "\\" if inside.startswith("^") else ""
            piece = f"[{mark}{inside}]"
        else:
            piece = re.escape(found["sign"] or found["plain"])
        pattern.append(piece)
        signs.append(found["sign"] or found["plain"])
        place = found.end()
    if not pattern:
        raise _error(text, "a name or pattern is missing")
    # A wildcard, neither escaped nor plain, leaves a None: the rule names no schema.
    return rf"\A(?s:{''.join(pattern)})\Z", "" if None in signs else "".join(signs), place


def _error(rule: str, why: str) -> ValueError:
    return ValueError(f"the rule {rule!r} cannot be read: {why}")


def unselected(
    selectors: Sequence[ColumnSelector], table: tuple[str, str], names: Iterable[str], *, case: bool
) -> list[str]:
    """Return the columns that a table's rows lack (schema, name).

    `case`: table names are case-sensitive; column names never are.

    The first selector whose matcher includes the table applies to it; without one, its rows carry
    all columns.
    """
    for selector in selectors:
        if table_rules(selector.matcher, case=case).matches(*table):
            columns = table_rules(selector.columns, parts=1)
            return [name for name in names if not columns.matches(name)]
    return []


def vouching(upstream: Upstream) -> str:
    """Return the option by which an operator vouches for these selectors; empty if given."""
    name = f"{zlib.crc32(repr((upstream.case_sensitive, upstream.column_selectors)).encode()):08x}"
    return "" if upstream.headerless_selectors == name else f"--headerless-selectors {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedColumns:
    """Which columns the rows of each table carry."""

    selectors: tuple[ColumnSelector, ...] = ()
    case_sensitive: bool = False

    def lacking(self, table: TableName, names: Iterable[str]) -> list[str]:
        """Return those of a table's columns that its rows lack."""
        return unselected(
            self.selectors, (table.schema, table.table), names, case=self.case_sensitive
        )


ALL_COLUMNS = CarriedColumns()


def leaving_out(found: Iterable[LeftOut], table: tuple[str, str], *, case: bool) -> str:
    """Return changes of a table that TiCDC leaves out, or empty; `case`: see `unselected`."""
    for each in found:
        try:
            if table_rules(each.matcher, case=case).matches(*table):
                return each.what
        except ValueError:
            # Only TiCDC has to read them.
            return each.what
    return ""


def check_selectors(selectors: Iterable[ColumnSelector]) -> None:
    """Raise `ConfigError` for a rule that cannot be read."""
    for selector in selectors:
        try:
            table_rules(selector.matcher)
            table_rules(selector.columns, parts=1)
        except ValueError as error:
            raise ConfigError(f"[[sink.column-selectors]]: {error}") from error


_OTHER_NAMES: Mapping[DdlKind, str] = {
    DdlKind.CREATE_SCHEMA: "create database",
    DdlKind.DROP_SCHEMA: "drop database",
    DdlKind.ALTER_SCHEMA: "modify schema charset and collate",
    DdlKind.CREATE_TABLES: "create table",
    DdlKind.RENAME_TABLES: "rename table",
    DdlKind.MODIFY_TABLE_CHARSET: "modify table charset and collate",
    DdlKind.ADD_PARTITION: "add table partition",
    DdlKind.DROP_PARTITION: "drop table partition",
    DdlKind.TRUNCATE_PARTITION: "truncate table partition",
    DdlKind.EXCHANGE_PARTITION: "exchange table partition",
    DdlKind.REORGANIZE_PARTITION: "reorganize table partition",
    DdlKind.ALTER_PARTITIONING: "alter table partitioning",
    DdlKind.REMOVE_PARTITIONING: "remove table partitioning",
    DdlKind.ADD_COLUMNS: "add column",
    DdlKind.DROP_COLUMNS: "drop column",
    DdlKind.ADD_INDEX: "create index",
    DdlKind.ALTER_TTL: "alter ttl info",
    DdlKind.REMOVE_TTL: "alter ttl remove",
}
EVENTS: Mapping[int, str] = MappingProxyType(
    {kind: _OTHER_NAMES.get(kind, kind.name.lower().replace("_", " ")) for kind in DdlKind}
)
"""TiDB's DDL action code → TiCDC's name of the event."""
ALL_DDL, ALTER_TABLE = "all ddl", "alter table"
NO_ALTERATIONS = frozenset(
    (
        DdlKind.CREATE_SCHEMA,
        DdlKind.DROP_SCHEMA,
        DdlKind.ALTER_SCHEMA,
        DdlKind.CREATE_TABLE,
        DdlKind.CREATE_TABLES,
        DdlKind.DROP_TABLE,
        DdlKind.TRUNCATE_TABLE,
        DdlKind.RECOVER_TABLE,
        DdlKind.CREATE_VIEW,
        DdlKind.DROP_VIEW,
        DdlKind.ADD_FOREIGN_KEY,
        DdlKind.DROP_FOREIGN_KEY,
        DdlKind.ADD_FULLTEXT_INDEX,
        DdlKind.CREATE_HYBRID_INDEX,
    )
)
"""Actions that TiCDC's ``alter table`` does not cover."""
ALIASES: Mapping[str, str] = MappingProxyType(
    {"create schema": "create database", "drop schema": "drop database"}
)
_OF_ROWS = frozenset(("all dml", "insert", "update", "delete"))
_KNOWN_EVENTS = frozenset((*EVENTS.values(), *ALIASES, ALL_DDL, ALTER_TABLE))
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def rules(value: object) -> tuple[str, ...]:
    """Return filter rules of a list, lines, or a TOML array; ValueError if unreadable."""
    found: list[str] = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if not isinstance(item, str):
            raise ValueError(f"a rule like shop.* or !shop.items is expected, not {item!r}")  # noqa: TRY004 - one exception for every value that does not fit
        # A rule may begin with a bracket too: what is no TOML array is one rule a line.
        array: Any = None
        if item.lstrip().startswith("["):
            with suppress(tomllib.TOMLDecodeError):
                array = tomllib.loads(f"x = {item}")["x"]
        is_array = (
            isinstance(array, list) and array and all(isinstance(each, str) for each in array)
        )
        found += array if is_array else item.splitlines()
    # Compiled here only to see whether they can be.
    given = tuple(found)
    table_rules(given)
    return given


def skipped(value: object) -> tuple[tuple[str, int], ...]:
    """Return each transaction's rule, or none, and commit-ts; ValueError for an unclear one."""
    found = list[tuple[str, int]]()
    items = value if isinstance(value, (list, tuple)) else [value]
    for line in (line for item in items for line in str(item).splitlines()):
        rule, _, numbers = line.rpartition(":")
        if not all(number.strip().isdecimal() for number in numbers.split(",")):
            raise ValueError(f"a commit-ts or RULE:commit-ts is expected, not {line!r}")
        if rule and not any(each.taken_in for each in _rule(rule, 2, case=False)):
            raise ValueError(f"the rule {rule!r} includes no table")
        found += [(rule, parse_instant(number)) for number in numbers.split(",")]
    return tuple(found)


def skipped_in(
    given: Iterable[tuple[str, int]], name: TableName, commit_range: CommitRange
) -> frozenset[int]:
    """Return the commit-ts in a range whose rows of a table are left out."""
    return frozenset(
        ts
        for rule, ts in given
        if commit_range.low < ts <= commit_range.high
        and (not rule or table_rules((rule,)).matches(name.schema, name.table))
    )


def event_filters(value: object) -> tuple[EventFilter, ...]:
    """Return event filters of TOML tables or texts; ValueError names what is wrong."""
    found = []
    for table in _tables(value):
        given = _texts(table, "matcher", "ignore-event", "ignore-sql")
        for event in map(str.lower, given["ignore-event"]):
            if event in _OF_ROWS:
                raise ValueError(
                    f"the event {event!r} concerns rows, which only TiCDC can leave out, when it writes: it belongs in the changefeed's "
                    "[[filter.event-filters]]"
                )
            if event not in _KNOWN_EVENTS:
                raise ValueError(f"there is no event {event!r}{did_you_mean(event, _KNOWN_EVENTS)}")
        for pattern in given["ignore-sql"]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"the regular expression {pattern!r} cannot be read: {error}"
                ) from None
        # In TiCDC's own spelling, which statements are compared with.
        events = tuple(ALIASES.get(event.lower(), event.lower()) for event in given["ignore-event"])
        found.append(
            EventFilter(
                matcher=given["matcher"], ignore_event=events, ignore_sql=given["ignore-sql"]
            )
        )
    return tuple(found)


def routes(value: object) -> tuple[Route, ...]:
    """Return routes of TOML tables or their texts; ValueError names what is wrong."""
    found = []
    for table in _tables(value):
        given = _texts(table, "matcher", "target-schema", "target-table")
        schema, name = ("".join(given[key]) for key in ("target-schema", "target-table"))
        if not schema and not name:
            raise ValueError(
                f"the route of {', '.join(given['matcher'])} has neither `target-schema` nor `target-table`"
            )
        for placeholder in _PLACEHOLDER.findall(schema + name):
            if placeholder not in ("{schema}", "{table}"):
                raise ValueError(f"{placeholder} is not a placeholder; use {{schema}} or {{table}}")
        found.append(Route(matcher=given["matcher"], target_schema=schema, target_table=name))
    return tuple(found)


def routed_to_reserved(selecting: Selecting, state_schema: str) -> str:
    """Return why a route is impossible, into a reserved database; empty if none is.

    If `{schema}` is filled by names that no rule spells out, that shows only when a table of such a
    name arrives.
    """
    for route in selecting.routes:
        target = route.target_schema or "{schema}"
        schemas = [
            target.replace("{schema}", name) for name in table_rules(route.matcher).named_schemas()
        ]
        for schema in (*schemas, target):
            if "{" not in schema and (why := why_reserved(schema, state_schema)):
                return f"the route of {', '.join(route.matcher)} leads into {schema}, which {why}"
    return ""


def taken_from_reserved(selecting: Selecting, state_schema: str) -> str:
    """Return why the filter is impossible: a reserved database without a route; or empty."""
    for schema in table_rules(selecting.rules).named_schemas():
        # A route of some table suffices: what stays in it is refused when it arrives.
        moved = any(
            r.target_schema and table_rules(r.matcher).matches_schema(schema)
            for r in selecting.routes
        )
        if not moved and (why := why_reserved(schema, state_schema)):
            return (
                f"the filter includes {schema}, which {why}. Route its tables to another database with --route, "
                "or exclude them"
            )
    return ""


def _tables(value: object) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        parsed: object = item
        if isinstance(item, str):
            try:
                parsed = tomllib.loads(f"x = {item}")["x"]
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"{item!r} is not an inline table of TOML: {error}") from None
        for table in parsed if isinstance(parsed, list) else [parsed]:
            if not isinstance(table, Mapping):
                raise ValueError(  # noqa: TRY004 - one exception for every value that does not fit
                    f'an inline table like {{matcher = ["shop.*"], …}} is expected, not {table!r}'
                )
            found.append(table)
    return found


def _texts(table: Mapping[str, object], *keys: str) -> dict[str, tuple[str, ...]]:
    """Return a table's texts by key; no other keys are allowed, and the first must exist.

    That is the matcher.
    """
    for key in table:
        if key not in keys:
            raise ValueError(f"there is no key `{key}`{did_you_mean(key, keys)}")
    found: dict[str, tuple[str, ...]] = {}
    for key in keys:
        value = table.get(key, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`{key}` takes strings, not {value!r}")
        found[key] = tuple(texts)
    matcher = found[keys[0]]
    if not matcher:
        raise ValueError("`matcher` is missing: the rules that select the tables")
    table_rules(matcher)
    return found
