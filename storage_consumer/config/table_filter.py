"""TiCDC's table filter language: rules such as ``shop.*``, ``!shop.items`` and ``/^s/.t?``, over names of one or two parts.

The last rule that fits decides, and a name that no rule fits is excluded. Excluding rules (``!``) therefore follow an including
one.

Column selectors speak it too: a selector's matcher is a list of rules for tables (``schema.table``), and its columns are rules for one
name. They say which columns TiCDC's new architecture writes for a table. Schema files list all of them nevertheless.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from storage_consumer.config.settings import ColumnSelector, LeftOut, Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName

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
            # The reverse: any exclusion in the schema spoils it, and only an inclusion of every table covers it.
            if rule.patterns[0].search(schema) and (rule.takes_every_table or not rule.taken_in):
                return rule.taken_in
        return False


@lru_cache(maxsize=256)
def table_rules(texts: tuple[str, ...], *, parts: int = 2, case: bool = False) -> TableRules:
    """Return the rules of these texts, for names with `parts` parts; `case`: names are case-sensitive.

    Raises ValueError, which names the rule, for one that cannot be read.
    """
    return TableRules(tuple(rule for text in texts for rule in _rule(text.strip(" \t"), parts, case=case)))


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
        patterns.append(_compiled(text, pattern, case=case))
        names.append(name)
    if place != len(text):
        raise _error(text, f"unexpected {text[place:]!r}")
    yield _Rule(taken_in, tuple(patterns), names[0])


def _pattern(text: str, place: int) -> tuple[str, str, int]:
    """Return the regular expression of the name pattern at `place`, the name if it is a plain one, and the end of both."""
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
        pattern.append(_piece(found))
        signs.append(found["sign"] or found["plain"])
        place = found.end()
    if not pattern:
        raise _error(text, "a name or pattern is missing")
    # A wildcard is neither an escaped sign nor a plain one, so it leaves a None: then the rule names no schema.
    return rf"\A(?s:{''.join(pattern)})\Z", "" if None in signs else "".join(signs), place


def _piece(token: re.Match[str]) -> str:
    if token["many"]:
        return ".*"
    if token["one"]:
        return "."
    if token["class"]:
        inside = token["class"].replace("[", r"\[")
        return f"[^{inside}]" if token["negated"] else f"[{_literal_caret(inside)}]"
    return re.escape(token["sign"] or token["plain"])


def _literal_caret(inside: str) -> str:
    # The language negates a class by "!"; a leading "^" would negate it in Python only.
    return f"\\{inside}" if inside.startswith("^") else inside


def _compiled(text: str, pattern: str, *, case: bool) -> re.Pattern[str]:
    try:
        # Without case unless the changefeed asks for it, as in TiCDC.
        return re.compile(pattern, 0 if case else re.IGNORECASE)
    except re.error as error:
        raise _error(text, f"the regular expression cannot be read: {error}") from error


def _error(rule: str, why: str) -> ValueError:
    return ValueError(f"the rule {rule!r} cannot be read: {why}")


def unselected(
    selectors: Sequence[ColumnSelector], table: tuple[str, str], names: Iterable[str], *, case: bool
) -> list[str]:
    """Return the columns that the rows of a table (schema, name) lack. `case`: table names are case-sensitive; column names never are.

    The first selector whose matcher includes the table applies to it; without one, its rows carry all columns.
    """
    for selector in selectors:
        if table_rules(selector.matcher, case=case).matches(*table):
            columns = table_rules(selector.columns, parts=1)
            return [name for name in names if not columns.matches(name)]
    return []


def vouching(upstream: Upstream) -> str:
    """Return the option by which an operator vouches for these very selectors; empty if that was given."""
    name = f"{zlib.crc32(repr((upstream.case_sensitive, upstream.column_selectors)).encode()):08x}"
    return "" if upstream.headerless_selectors == name else f"--headerless-selectors {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedColumns:
    """Which columns the rows of each table carry."""

    selectors: tuple[ColumnSelector, ...] = ()
    case_sensitive: bool = False

    def lacking(self, table: TableName, names: Iterable[str]) -> list[str]:
        """Return those of a table's columns that its rows lack."""
        return unselected(self.selectors, (table.schema, table.table), names, case=self.case_sensitive)


ALL_COLUMNS = CarriedColumns()


def leaving_out(found: Iterable[LeftOut], table: tuple[str, str], *, case: bool) -> str:
    """Return which changes of a table (schema, name) TiCDC leaves out; empty if none. `case`: see `unselected`."""
    return next((each.what for each in found if _may_fit(each.matcher, table, case=case)), "")


def _may_fit(matcher: tuple[str, ...], table: tuple[str, str], *, case: bool) -> bool:
    try:
        return table_rules(matcher, case=case).matches(*table)
    except ValueError:
        # Only TiCDC has to read them.
        return True


def check_selectors(selectors: Iterable[ColumnSelector]) -> None:
    """Raise `ConfigError` for a rule that cannot be read."""
    for selector in selectors:
        try:
            table_rules(selector.matcher)
            table_rules(selector.columns, parts=1)
        except ValueError as error:
            raise ConfigError(f"[[sink.column-selectors]]: {error}") from error
