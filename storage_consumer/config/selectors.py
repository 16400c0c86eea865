"""Column selectors: which columns TiCDC's new architecture writes for a table. Schema files list all of them nevertheless.

A matcher is a list of rules of TiCDC's table filter (``schema.table``), a selector's columns are rules of the same language
for one name. In both the last rule that fits decides, and a name that none fits is not selected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from storage_consumer.config.settings import ColumnSelector
from storage_consumer.errors import ConfigError

_Rule = tuple[bool, tuple[re.Pattern[str], ...]]
"""Whether it takes names in or leaves them out, and the pattern of each part of a name."""

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


def unselected(
    selectors: Sequence[ColumnSelector], table: tuple[str, str], names: Iterable[str], *, case: bool
) -> list[str]:
    """Which columns the rows of a table (schema, name) lack. `case`: table names are told apart by case; column names never are.

    The first selector whose matcher takes the table in is the table's; without one its rows carry all columns.
    """
    for selector in selectors:
        if _decides(_rules(selector.matcher, 2, case=case), table):
            columns = _rules(selector.columns, 1, case=False)
            return [name for name in names if not _decides(columns, (name,))]
    return []


def check(selectors: Iterable[ColumnSelector]) -> None:
    """Raise `ConfigError` for a rule that cannot be read."""
    for selector in selectors:
        _rules(selector.matcher, 2, case=False)
        _rules(selector.columns, 1, case=False)


def _decides(rules: Sequence[_Rule], name: tuple[str, ...]) -> bool:
    for taken_in, patterns in reversed(rules):
        if all(pattern.search(part) for pattern, part in zip(patterns, name, strict=True)):
            return taken_in
    return False


@lru_cache(maxsize=256)
def _rules(texts: tuple[str, ...], parts: int, *, case: bool) -> tuple[_Rule, ...]:
    return tuple(rule for text in texts for rule in _rule(text.strip(" \t"), parts, case=case))


def _rule(text: str, parts: int, *, case: bool) -> Iterator[_Rule]:
    """One rule, or none for a comment."""
    if not text or text.startswith("#"):
        return
    if text.startswith("@"):
        raise _error(text, "rules in a file of TiCDC's host cannot be read here; write them out")
    taken_in = not text.startswith("!")
    place, patterns = 0 if taken_in else 1, []
    for part in range(parts):
        if part:
            if text[place : place + 1] != ".":
                raise _error(text, "a dot is missing between schema and table")
            place += 1
        pattern, place = _pattern(text, place)
        patterns.append(_compiled(text, pattern, case=case))
    if place != len(text):
        raise _error(text, f"{text[place:]!r} is too much")
    yield taken_in, tuple(patterns)


def _pattern(text: str, place: int) -> tuple[str, int]:
    """The regular expression of the name pattern at `place`, and where it ends."""
    sign = text[place : place + 1]
    if sign == "/":
        if (found := _EXPRESSION.match(text, place)) is None:
            raise _error(text, "the regular expression has no end")
        return found[1], found.end()
    if sign in _DELIMITED:
        if (found := _DELIMITED[sign].match(text, place)) is None:
            raise _error(text, "the quoted name has no end")
        return rf"\A{re.escape(found[1].replace(sign * 2, sign))}\Z", found.end()
    pattern = []
    while found := _TOKEN.match(text, place):
        pattern.append(_piece(found))
        place = found.end()
    if not pattern:
        raise _error(text, "a name or pattern is missing")
    return rf"\A(?s:{''.join(pattern)})\Z", place


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
    return f"\\{inside}" if inside.startswith("^") else inside


def _compiled(text: str, pattern: str, *, case: bool) -> re.Pattern[str]:
    try:
        return re.compile(pattern, 0 if case else re.IGNORECASE)
    except re.error as error:
        raise _error(text, f"the regular expression cannot be read: {error}") from error


def _error(rule: str, why: str) -> ConfigError:
    return ConfigError(f"[[sink.column-selectors]]: the rule {rule!r} cannot be read: {why}")
