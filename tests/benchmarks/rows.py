r"""The benchmark's table and how its rows are written: canal-json, CSV, a line for LOAD DATA, and a text for checksums.

A row is (primary key, state), two integers; everything else follows from them, so a million rows take little memory.
Texts come from pools that hold quotes, backslashes, TAB, CR LF, NULL and letters beyond ASCII, prepared in each form.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

DATABASE = "bench"
COLUMNS: tuple[dict[str, str], ...] = (
    {
        "ColumnName": "id",
        "ColumnType": "BIGINT",
        "ColumnPrecision": "20",
        "ColumnNullable": "false",
        "ColumnIsPk": "true",
    },
    {"ColumnName": "amount", "ColumnType": "DECIMAL", "ColumnPrecision": "12", "ColumnScale": "2"},
    {"ColumnName": "name", "ColumnType": "VARCHAR", "ColumnPrecision": "64"},
    {"ColumnName": "note", "ColumnType": "TEXT", "ColumnPrecision": "65535"},
    {"ColumnName": "created", "ColumnType": "DATETIME"},
    {"ColumnName": "doc", "ColumnType": "JSON"},
    {"ColumnName": "payload", "ColumnType": "BLOB", "ColumnPrecision": "65535"},
    {"ColumnName": "weight", "ColumnType": "DOUBLE", "ColumnPrecision": "22"},
)
"""As a schema file lists them."""
SQL_COLUMNS = (
    "`id` BIGINT NOT NULL PRIMARY KEY, `amount` DECIMAL(12,2), `name` VARCHAR(64), `note` TEXT, "
    "`created` DATETIME, `doc` JSON, `payload` BLOB, `weight` DOUBLE"
)
CHECKSUM = (
    "CRC32(CONCAT_WS('|', `id`, `amount`, `name`, IFNULL(`note`, '\\\\N'), `created`, `doc`, HEX(`payload`), `weight`))"
)
"""Of one row, as the server computes it."""
_JAVA_TYPES = '{"id":-5,"amount":3,"name":12,"note":-1,"created":93,"doc":12,"payload":2004,"weight":8}'
_MYSQL_TYPES = (
    '{"note":"text","id":"bigint","amount":"decimal","doc":"json","name":"varchar","payload":"blob",'
    '"created":"datetime","weight":"double"}'
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """One value in each form."""

    canal: str
    csv: str
    line: bytes
    plain: str


class RowFormats:
    """Writes rows of one protocol; the same `seed` gives the same pools."""

    def __init__(self, seed: int) -> None:
        """Fill the pools."""
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._notes = [_note(chance) for _ in range(_POOL)]
        self._docs = [_text(_doc(chance)) for _ in range(_POOL)]
        self._moments = [_text(str(_moment(chance))) for _ in range(_POOL)]
        self._blobs = [_blob(chance.randbytes(chance.randint(16, 48))) for _ in range(_POOL)]

    def _texts(self, state: int) -> tuple[_Text, _Text, _Text, _Text]:
        return (
            self._notes[state % _POOL],
            self._moments[(state >> 12) % _POOL],
            self._docs[(state >> 24) % _POOL],
            self._blobs[(state >> 36) % _POOL],
        )

    def image(self, pk: int, state: int) -> str:
        """A row's columns as canal-json has them."""
        amount, name, weight = _scalars(state)
        note, created, doc, payload = self._texts(state)
        return (
            f'{{"id":"{pk}","amount":"{amount}","name":"{name}","note":{note.canal},"created":{created.canal},'
            f'"doc":{doc.canal},"payload":{payload.canal},"weight":"{weight}"}}'
        )

    def values(self, pk: int, state: int) -> str:
        """A row's columns as CSV has them."""
        amount, name, weight = _scalars(state)
        note, created, doc, payload = self._texts(state)
        return f'{pk},"{amount}","{name}",{note.csv},{created.csv},{doc.csv},{payload.csv},{weight}'

    def line(self, pk: int, state: int) -> bytes:
        """A row as LOAD DATA with CHARACTER SET binary takes it, LF included."""
        amount, name, weight = _scalars(state)
        note, created, doc, payload = self._texts(state)
        head, tail = f"{pk}\t{amount}\t{name}".encode(), weight.encode()
        return b"\t".join((head, note.line, created.line, doc.line, payload.line, tail)) + b"\n"

    def checksum(self, pk: int, state: int) -> int:
        """What `CHECKSUM` gives for the row."""
        amount, name, weight = _scalars(state)
        note, created, doc, payload = self._texts(state)
        parts = (str(pk), amount, name, note.plain, created.plain, doc.plain, payload.plain, weight)
        return zlib.crc32("|".join(parts).encode())

    def event(self, protocol: str, table: str, commit_ts: int, change: tuple[int, int | None, int | None]) -> str:
        """One row change, terminator included. `change`: (primary key, state before, state after), None for no row."""
        pk, before, after = change
        if protocol == "csv":
            operation = "I" if before is None else "D" if after is None else "U"
            values = self.values(pk, _either(after, before))
            return f'"{operation}","{table}","{DATABASE}",{commit_ts},{values}\r\n'
        operation = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
        old = "null" if before is None or after is None else f"[{self.image(pk, before)}]"
        moment = commit_ts >> 18
        return (
            f'{{"id":0,"database":"{DATABASE}","table":"{table}","pkNames":["id"],"isDdl":false,"type":"{operation}",'
            f'"es":{moment},"ts":{moment + 900},"sql":"","sqlType":{_JAVA_TYPES},"mysqlType":{_MYSQL_TYPES},"old":{old},'
            f'"data":[{self.image(pk, _either(after, before))}],"_tidb":{{"commitTs":{commit_ts}}}}}\r\n'
        )


def _either(after: int | None, before: int | None) -> int:
    state = before if after is None else after
    assert state is not None
    return state


def _scalars(state: int) -> tuple[str, str, str]:
    """Amount, name and weight; weights are multiples of 1/8, so that every program writes them alike."""
    cents = state % 1_000_000_007
    return f"{cents // 100}.{cents % 100:02d}", f"user-{state:015x}", repr(state % 799_993 / 8).removesuffix(".0")


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


def schema_file(version: int, table: str, query: str, columns: Sequence[dict[str, str]]) -> tuple[str, str]:
    """A schema file's path and content; `table` is empty and there are no `columns` for the database itself."""
    hashed: dict[str, Any] = {
        "Table": table,
        "Schema": DATABASE,
        "Version": 0,
        "TableColumns": sorted(columns, key=lambda column: column["ColumnName"]),
        "TableColumnsTotal": len(columns),
    }
    checksum = zlib.crc32(json.dumps(hashed, indent=4).encode())
    content = {
        "Table": table,
        "Schema": DATABASE,
        "Version": 1,
        "TableVersion": version,
        "Query": query,
        "Type": 3 if table else 1,
        "TableColumns": list(columns) or None,
        "TableColumnsTotal": len(columns),
    }
    folder = f"{DATABASE}/{table}" if table else DATABASE
    return f"{folder}/meta/schema_{version}_{checksum:010d}.json", json.dumps(content, indent=4)
