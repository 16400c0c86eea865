"""How the benchmark's rows are written: canal-json, CSV, a line for LOAD DATA, and a text for checksums.

A row is (number, state), two integers; everything else follows from them, so a million rows take little memory.
Texts come from pools that hold quotes, backslashes, TAB, CR LF, NULL and letters beyond ASCII, prepared in each form.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.benchmarks.shapes import DATABASE, Shape

STATE_BITS = 60
"""Of a state, from which the ordinary columns follow; what is above them is the code of a table that has one."""
_STATE = (1 << STATE_BITS) - 1
_POOL = 4_096
_NULLS = 0.03
_SPECIALS = 0.02
_WORDS = (
    *(
        "amber",
        "basalt",
        "cedar",
        "delta",
        "ember",
        "fjord",
        "granite",
        "harbour",
        "indigo",
        "juniper",
        "kelp",
        "lagoon",
    ),
    *("Käse", "Ωmega", "山川", "naïve", "🚚", "<b>&"),
)
"""Plain ones first."""
_TRAPS = ('said "no"', "C:\\temp\\new", "tab\there", "line\r\nbreak", "it's, NULL", "\\N")
_ESCAPED_BY_GO = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class _Text(NamedTuple):
    """One value in each form."""

    canal: str
    csv: str
    line: bytes
    plain: str


Change = tuple[int, int | None, int | None]
"""(row, state before, state after); None: no row."""


class RowFormats:
    """Writes rows of one shape; the same `seed` gives the same pools."""

    def __init__(self, shape: Shape, seed: int) -> None:
        """Fill the pools."""
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._notes = [_note(chance) for _ in range(_POOL)]
        self._docs = [_text(_doc(chance)) for _ in range(_POOL)]
        self._moments = [_text(str(_moment(chance))) for _ in range(_POOL)]
        self._blobs = [_blob(chance.randbytes(chance.randint(16, 48))) for _ in range(_POOL)]
        self._shape = shape
        columns = shape.columns
        self._image = "{{" + ",".join(f'"{column.name}":{{}}' for column in columns) + "}}"
        self._message = (
            f'"pkNames":{json.dumps(["id"] if shape.keyed else [])},"isDdl":false,"type":"{{}}","es":{{}},"ts":{{}},"sql":"",'
            f'"sqlType":{_braced({column.name: column.java for column in columns})},'
            f'"mysqlType":{_braced({column.name: column.mysql for column in reversed(columns)})},'
        )

    def _texts(self, row: int, state: int) -> list[_Text]:
        """A row's values in each form, in the order of the columns."""
        found = [_number(str(shown_id(self._shape, row)))]
        if self._shape.coded:
            found.append(_bare(f"code-{state >> STATE_BITS:x}"))
        for group in range(self._shape.groups):
            bits = state * (2 * group + 1) & _STATE
            cents = bits % 1_000_000_007
            found += (
                _bare(f"{cents // 100}.{cents % 100:02d}"),
                _bare(f"user-{bits:015x}"),
                self._notes[bits % _POOL],
                self._moments[(bits >> 12) % _POOL],
                self._docs[(bits >> 24) % _POOL],
                self._blobs[(bits >> 36) % _POOL],
                # Multiples of 1/8, which every program writes alike.
                _number(repr(bits % 799_993 / 8).removesuffix(".0")),
            )
        return found

    def image(self, row: int, state: int) -> str:
        """A row's columns as canal-json has them."""
        return self._image.format(*[text.canal for text in self._texts(row, state)])

    def values(self, row: int, state: int) -> str:
        """A row's columns as CSV has them."""
        return ",".join([text.csv for text in self._texts(row, state)])

    def line(self, row: int, state: int) -> bytes:
        """A row as LOAD DATA with CHARACTER SET binary takes it, LF included."""
        return b"\t".join([text.line for text in self._texts(row, state)]) + b"\n"

    def checksum(self, row: int, state: int) -> int:
        """What `Shape.checksum` gives for the row."""
        return zlib.crc32("|".join([text.plain for text in self._texts(row, state)]).encode())

    def event(self, protocol: str, table: str, commit_ts: int, change: Change) -> str:
        """One row change, terminator included. CSV of a table without a key names what an update replaces."""
        row, before, after = change
        if protocol == "csv":
            return self._csv(table, commit_ts, change)
        operation = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
        old = "null" if before is None or after is None else f"[{self.image(row, before)}]"
        moment = commit_ts >> 18
        return (
            f'{{"id":0,"database":"{DATABASE}","table":"{table}",{self._message.format(operation, moment, moment + 900)}'
            f'"old":{old},"data":[{self.image(row, _either(after, before))}],"_tidb":{{"commitTs":{commit_ts}}}}}\r\n'
        )

    def _csv(self, table: str, commit_ts: int, change: Change) -> str:
        row, before, after = change
        head = f'"{table}","{DATABASE}",{commit_ts}'
        if self._shape.keyed:
            operation = "I" if before is None else "D" if after is None else "U"
            return f'"{operation}",{head},{self.values(row, _either(after, before))}\r\n'
        update = str(before is not None and after is not None).lower()
        halves = (("D", before), ("I", after))
        return "".join(f'"{kind}",{head},{update},{self.values(row, s)}\r\n' for kind, s in halves if s is not None)


def shown_id(shape: Shape, row: int) -> int:
    """The value of column id; without a key two neighbours share it, so that rows may be equal."""
    return row if shape.keyed else (row + 1) // 2


def _braced(values: dict[str, Any]) -> str:
    """JSON without blanks, as the inside of a format."""
    return json.dumps(values, separators=(",", ":")).replace("{", "{{").replace("}", "}}")


def _number(text: str) -> _Text:
    return _Text(canal=f'"{text}"', csv=text, line=text.encode(), plain=text)


def _bare(text: str) -> _Text:
    """A text without anything to escape."""
    return _Text(canal=f'"{text}"', csv=f'"{text}"', line=text.encode(), plain=text)


def _either(after: int | None, before: int | None) -> int:
    state = before if after is None else after
    assert state is not None
    return state


def _text(text: str) -> _Text:
    line = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    quoted = '"' + text.replace('"', '""') + '"'
    return _Text(canal=_go_json(text), csv=quoted, line=line.encode(), plain=text)


def _blob(content: bytes) -> _Text:
    line = content.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")
    encoded = base64.b64encode(content).decode()
    return _Text(canal=_go_json(content.decode("latin-1")), csv=f'"{encoded}"', line=line, plain=content.hex().upper())


def _go_json(text: str) -> str:
    """A JSON string as Go writes it."""
    return json.dumps(text, ensure_ascii=False).translate(_ESCAPED_BY_GO)


def _note(chance: random.Random) -> _Text:
    if chance.random() < _NULLS:
        return _Text(canal="null", csv="\\N", line=b"\\N", plain="\\N")
    words = chance.choices(_WORDS, k=chance.randint(8, 24))
    if chance.random() < _SPECIALS:
        words += _TRAPS
    return _text(" ".join(words))


def _doc(chance: random.Random) -> str:
    document = {"k": chance.randrange(1_000), "on": chance.random() < 0.5, "tags": chance.choices(_WORDS[:14], k=2)}
    return json.dumps(document, ensure_ascii=False)


def _moment(chance: random.Random) -> datetime:
    return datetime(2001, 1, 1) + timedelta(seconds=chance.randrange(700_000_000))  # noqa: DTZ001 - a DATETIME has no zone
