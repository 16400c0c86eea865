"""What a SQL data file has besides rows: comments, settings, and the head of each INSERT. Nothing here executes SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage_consumer.config.settings import DumpOptions
from storage_consumer.decode.decoder import RowLayout
from storage_consumer.decode.dump.columns import order_of
from storage_consumer.decode.dump.sql_values import Unfinished
from storage_consumer.decode.time_zone import converted_zone, session_zone
from storage_consumer.model import folded_name

_SPACE = re.compile(rb"[\s;]*")
"""What is between statements."""
_BLANKS = re.compile(rb"\s*")
_COMMENT = re.compile(
    rb"/\*(?P<heeded>!\d*|T!(?:\[[^\]]*\])?|M!\d*)?(?P<text>.*?)\*/|(?:--(?=\s)|#)[^\n]*\n", re.DOTALL
)
_SET = re.compile(rb"\s*SET\s+(?P<text>(?>(?:[^;'\"]|'[^']*'|\"[^\"]*\")*));", re.IGNORECASE)
_INSERT = re.compile(rb"(?:INSERT(?:\s+IGNORE)?|REPLACE)\s+INTO\s+", re.IGNORECASE)
_NAME = re.compile(rb"`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^\s(`\"]+")
_LIST = re.compile(rb"\s*\((?P<names>(?>(?:`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^`\"()])*))\)")
_COLUMN = re.compile(rb"\s*(`(?>(?:[^`]|``)*)`|\"(?>(?:[^\"]|\"\")*)\"|[^\s,`\"]+)\s*(?:,|\Z)")
_VALUES = re.compile(rb"\s*VALUES(?=[\s(])", re.IGNORECASE)
_CHARSETS = frozenset(("binary", "utf8", "utf8mb3", "utf8mb4"))
_LONGEST = 4 << 20
"""Bytes of the longest head: the names of 4,096 columns have about a megabyte."""
_SETTING = re.compile(
    r"^NAMES\s+'?(\w+)'?|\bTIME_ZONE\s*=\s*'([^']*)'|\bSQL_MODE\s*=.*\b(NO_BACKSLASH_ESCAPES)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """Reads the heads of statements that insert into one table."""

    layout: RowLayout
    options: DumpOptions

    def next_insert(self, content: bytearray, at: int) -> tuple[int, tuple[int, ...] | None]:
        """Pass over comments and settings from `at` on, and over the head of an INSERT.

        Returns where its first row begins, and the places of its columns if it names them. Without an INSERT it returns where the content
        ends, negative. Raises `Unfinished`, or `ValueError` with the reason for anything else.
        """
        while True:
            at = self._space_end(content, at)
            if at == len(content):
                return -1, None
            passed = self._passed(content, at)
            if passed < 0:
                return self._head(content, at)
            at = passed

    @staticmethod
    def _space_end(content: bytearray, at: int) -> int:
        found = _SPACE.match(content, at)
        return found.end() if found else at

    def _passed(self, content: bytearray, at: int) -> int:
        """Return where the comment or setting at `at` ends, or -1 if there is none."""
        if found := _COMMENT.match(content, at):
            if found["heeded"] is not None:
                self._check(found["text"] + b";")
            return found.end()
        if found := _SET.match(content, at):
            self._check(found[0])
            return found.end()
        return -1

    def _check(self, text: bytes) -> None:
        """Raise `ValueError` if a server would do anything else than to set what does not matter here."""
        found = _SET.fullmatch(text)
        said = found["text"].decode("utf-8", "replace").strip() if found else ""
        if not said:
            raise ValueError(f"{text[:60]!r} is neither a row nor a setting")
        for names, zone, mode in _SETTING.findall(said):
            if names and names.lower() not in _CHARSETS:
                raise ValueError(f"its texts are in {names}: export again in utf8mb4")
            # As sessions, so that UTC is the same zone by any of its names.
            if zone and self.options.time_zone and _zone(zone) != _zone(self.options.time_zone):
                raise ValueError(f"its times are in {zone}, those of the export in {self.options.time_zone}")
            if mode and self.options.escape_backslash:
                raise ValueError("it was written under NO_BACKSLASH_ESCAPES, and is read as if backslashes escaped")

    def _head(self, content: bytearray, at: int) -> tuple[int, tuple[int, ...] | None]:
        if not (insert := _INSERT.match(content, at)):
            raise self._missing(content, at, "an INSERT was expected")
        place = insert.end()
        for spelling in _spellings(self.layout.table.table):
            # Dumpling forgets the quotes of names that begin or end with a backquote.
            if content.startswith(spelling, place):
                place += len(spelling)
                break
        else:
            if not (name := _NAME.match(content, place)):
                raise self._missing(content, at, "the name of a table was expected")
            if name.end() == len(content):
                raise Unfinished("the name of a table has no end")
            if _named(name[0]) != folded_name(self.layout.table.table):
                raise ValueError(
                    f"its rows belong to {name[0].decode('utf-8', 'replace')[:80]}, not to {self.layout.table}"
                )
            place = name.end()
        order = None
        place = self._usual_list_end(content, place)
        if not (values := _VALUES.match(content, place)):
            if not (listed := _LIST.match(content, place)):
                raise self._missing(content, at, "a list of columns or VALUES was expected")
            order = self._order(listed["names"])
            values = _VALUES.match(content, listed.end())
        if values is None:
            raise self._missing(content, at, "VALUES was expected")
        return values.end(), order

    def _usual_list_end(self, content: bytearray, at: int) -> int:
        """Return where the list of all columns in the layout's order ends, if it is at `at` as Dumpling or mydumper writes it; else `at`.

        Dumpling forgets the quotes of names that begin or end with a backquote, mydumper to double those inside a name: only the names
        that are expected tell where such a list ends.
        """
        begin = _BLANKS.match(content, at)
        names = [column.name for column in self.layout.columns]
        if begin is None or not names or not content.startswith(b"(", begin.end()):
            return at
        for lists in (
            [_spellings(name)[-1] for name in names],
            [b"`%b`" % name.encode("utf-8", "surrogatepass") for name in names],
        ):
            listed = b"(%b)" % b",".join(lists)
            if content.startswith(listed, begin.end()):
                return begin.end() + len(listed)
        return at

    def _order(self, listed: bytes) -> tuple[int, ...]:
        """Return the places of the columns that a list names."""
        found: list[str] = []
        at = 0
        while at < len(listed):
            column = _COLUMN.match(listed, at)
            if column is None:
                raise ValueError(f"{listed[at : at + 60]!r} is not the name of a column")
            found.append(_named(column[1], fold=False))
            at = column.end()
        return order_of(found, self.layout)

    @staticmethod
    def _missing(content: bytearray, at: int, what: str) -> Exception:
        """Return the error for what is not there, or not there yet."""
        return Unfinished(what) if len(content) - at < _LONGEST else ValueError(what)


def _zone(zone: str) -> str:
    return converted_zone(zone) or session_zone(zone)


def _spellings(name: str) -> list[bytes]:
    """Return how a name is written in backquotes, and how Dumpling writes it."""
    text = name.replace("`", "``").encode("utf-8", "surrogatepass")
    return [b"`%b`" % text, *([text] if "`" in (name[:1], name[-1:]) else [])]


def _named(text: bytes, *, fold: bool = True) -> str:
    name = text.decode("utf-8", "replace")
    if name[:1] in ("`", '"'):
        name = name[1:-1].replace(name[0] * 2, name[0])
    return folded_name(name) if fold else name
