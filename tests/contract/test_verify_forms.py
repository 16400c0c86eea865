"""Canonical forms on real servers: one value has one form on all of them, and two values of a server never share one."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pymysql.err
import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.model import TableName
from storage_consumer.rows.compared_layout import Digest, KeyRange, Row, TableLayout, layout_of
from storage_consumer.target.source_reading import ComparedTable, Reading
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
VALUES = 150
_DICE = random.Random(11)  # noqa: S311 - not for secrets


def _double() -> str:
    while True:
        (number,) = struct.unpack("d", struct.pack("Q", _DICE.getrandbits(64)))
        if number == number and 1e-307 < abs(number) < 1e308:  # noqa: PLR0124 - not a number
            return repr(number)


def _near() -> str:
    return repr(_DICE.choice([1, -1]) * _DICE.randrange(10**6) * 10.0 ** _DICE.randrange(-20, 20))


def _single() -> str:
    while True:
        (number,) = struct.unpack("f", struct.pack("I", _DICE.getrandbits(32)))
        if number == number and 1.2e-38 < abs(number) < 3.4e38:  # noqa: PLR0124 - likewise
            return repr(number)


def _text() -> str:
    return "".join(_DICE.choices("aAäÄ 0:;N\\'\"%\t\n表😀", k=_DICE.randrange(6)))


def _of(characters: str) -> Callable[[], str]:
    return lambda: "".join(_DICE.choices(characters, k=_DICE.randrange(6)))


def _moment() -> str:
    day = f"{_DICE.randrange(1, 9999):04}-{_DICE.randrange(1, 13):02}-{_DICE.randrange(1, 29):02}"
    return (
        f"{day} {_DICE.randrange(24):02}:{_DICE.randrange(60):02}:{_DICE.randrange(60):02}.{_DICE.randrange(1000):03}"
    )


def _document() -> str:
    inner = {_text(): _DICE.choice([1, 1.5, None, True, "x", [1, {}], 2**53]) for _ in range(_DICE.randrange(4))}
    return json.dumps(inner)


TYPES: dict[str, tuple[str, Callable[[], Any]]] = {
    "double": ("DOUBLE", _double),
    "near": ("DOUBLE", _near),
    "single": ("FLOAT", _single),
    "decimal": ("DECIMAL(30,10)", lambda: f"{_DICE.randrange(-(10**20), 10**20)}.{_DICE.randrange(10**10):010}"),
    "integer": ("BIGINT", lambda: _DICE.randrange(-(2**63), 2**63)),
    "unsigned": ("BIGINT UNSIGNED ZEROFILL", lambda: _DICE.randrange(2**64)),
    "bits": ("BIT(40)", lambda: _DICE.randrange(2**40)),
    "text": ("VARCHAR(40)", _text),
    "long": ("TEXT", lambda: _text() * _DICE.choice([1, 400])),
    "padded": ("CHAR(20)", _text),
    "gbk": ("VARCHAR(20) CHARACTER SET gbk", _of("aA ?é表丂\\'")),
    "gbk padded": ("CHAR(20) CHARACTER SET gbk COLLATE gbk_bin", _of("a ?é表丂")),
    "gbk long": ("TEXT CHARACTER SET gbk", lambda: _of("a ?表丂")() * _DICE.choice([1, 400])),
    "gbk set": ("SET('表', 'b', '?') CHARACTER SET gbk", lambda: ",".join(_DICE.sample(["表", "b", "?"], _DICE.randrange(4)))),
    "latin1": ("VARCHAR(20) CHARACTER SET latin1", _of("aA ?é€ÿ\x81")),
    "latin1 padded": ("CHAR(20) CHARACTER SET latin1", _of("a ?é€ÿ")),
    "latin1 long": ("TEXT CHARACTER SET latin1", lambda: _of("a ?é€ÿ")() * _DICE.choice([1, 400])),
    "ascii": ("VARCHAR(20) CHARACTER SET ascii", _of("aA ?0\t'")),
    "utf8mb3": ("VARCHAR(20) CHARACTER SET utf8mb3", _of("aA ?é表")),
    "bytes": ("VARBINARY(40)", lambda: _DICE.randbytes(_DICE.randrange(6))),
    "fixed": ("BINARY(5)", lambda: _DICE.randbytes(_DICE.randrange(6))),
    "moment": ("DATETIME(3)", _moment),
    "time": ("TIME(2)", lambda: f"{_DICE.randrange(-838, 838)}:{_DICE.randrange(59)}:{_DICE.randrange(59)}.{_DICE.randrange(100):02}"),
    "set": ("SET('a', 'b', 'c d')", lambda: ",".join(_DICE.sample(["a", "b", "c d"], _DICE.randrange(4)))),
    "json": ("JSON", _document),
}  # fmt: skip
DECLARED = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
ROWS = [(number, *(make() for _, make in TYPES.values())) for number in range(VALUES)]
# Neighbours: the next double, and the next single, must not look alike.
ROWS += [(VALUES + n, "0.1", "0.30000000000000004", "0.1", *ROWS[0][4:]) for n in range(1)]
ROWS += [(VALUES + 1 + n, "0.10000000000000002", "0.3", "0.10000001", *ROWS[0][4:]) for n in range(1)]


def made(server: DatabaseServer) -> tuple[Reading, ComparedTable]:
    """The table on one server, and what reads it."""
    server.query("CREATE DATABASE forms CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    with server.connect(database="forms") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {DECLARED})")
        cursor.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * (len(TYPES) + 1))})", ROWS)
    reading = Reading(Downstream(port=server.port), "", "target")
    return reading, ComparedTable(reading, TableName(schema="forms", table="t"))


def sums(side: ComparedTable) -> dict[int, dict[str, Digest]]:
    """Row → column → the digest of this one value."""
    whole, found = side.layout, dict[int, dict[str, Digest]]()
    for row in ROWS:
        one = KeyRange(above=((b"%d" % (row[0] - 1),),), upto=((b"%d" % row[0],),))
        found[row[0]] = {}
        for column in whole.columns[1:]:
            # The key first, but left out of the hash.
            key = replace(whole.columns[0], agrees=False)
            side.layout = replace(whole, columns=(key, replace(column, agrees=True)))
            found[row[0]][column.name] = side.chunk(one)
        side.layout = whole
    return found


def normal(layout: TableLayout, side: ComparedTable) -> dict[int, Row]:
    """Row → its values in the form in which they are compared."""
    return {int(row[0] or b""): layout.normal(row) for row in side.rows(KeyRange())}


@pytest.mark.slow
def test_forms_of_every_type(request: pytest.FixtureRequest) -> None:
    """Fetched values are the same on all servers; a server's checksums are the same just where these are; and servers agree on most."""
    servers = {kind: request.getfixturevalue(kind) for kind in KINDS}
    rows: dict[str, dict[int, Row]] = {}
    digests: dict[str, dict[int, dict[str, Digest]]] = {}
    source = made(servers[KINDS[-1]])
    for kind, server in servers.items():
        reading, side = source if kind == KINDS[-1] else made(server)
        with closing(reading):
            reading.begin()
            here, there = source[1].structure(), side.structure()
            assert here is not None
            assert there is not None
            layout = layout_of(here, there)
            side.layout = layout.sides[1]
            rows[kind], digests[kind] = normal(layout, side), sums(side)
    first = rows[KINDS[-1]]
    for kind, found in rows.items():
        for number, row in found.items():
            assert row == first[number], (kind, ROWS[number])
        names = ["id", *TYPES]
        for place, name in enumerate(names[1:], start=1):
            texts = {number: row[place] for number, row in found.items()}
            looks = {number: digests[kind][number][name].sums for number in found}
            assert len(set(looks.values())) >= len(set(texts.values())), (kind, name)
    # Equal values have equal checksums on all servers, or their tables are compared row by row: floats may, documents do.
    exact = [name for name in TYPES if name not in ("json", "double", "near", "single")]
    for kind, found_digests in digests.items():
        for number, by_name in found_digests.items():
            for name in exact:
                assert by_name[name] == digests[KINDS[-1]][number][name], (kind, name, ROWS[number])
        agree = sum(by_name["near"] == digests[KINDS[-1]][number]["near"] for number, by_name in found_digests.items())
        assert agree > 0.9 * len(ROWS), (kind, agree)


SAMPLES: dict[str, list[bytes]] = {
    **{charset: [bytes((number,)) for number in range(256)] for charset in ("ascii", "latin1", "cp1251", "greek")},
    **{
        charset: [bytes((first, second)) for first in (0x20, 0x3F, 0x81, 0x87, 0xA1, 0xD8, 0xFE) for second in range(0x20, 0xFF)]
        for charset in ("gbk", "sjis", "cp932", "big5", "euckr", "ucs2")
    },
    "gb18030": [b"?", b"\xe3\x32\x9a\x35", b"\xe3\x32\x9a\x36", b"\xfe\x39\xfe\x39", b"\xfe\x5a"],
}  # fmt: skip
"""Character set → bytes; a server takes some of them."""
COLUMNS = ("VARCHAR(9)", "CHAR(9)", "TEXT")


def taken(server: DatabaseServer, charset: str) -> Reading | None:
    """A table of the bytes that a server takes, each of them in columns of texts, and what reads it; None if it lacks the character set."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM information_schema.character_sets WHERE character_set_name = '{charset}'")
        if cursor.fetchall() == ((0,),):
            return None
        cursor.execute("CREATE DATABASE forms")
        cursor.execute("SET sql_mode = 'STRICT_ALL_TABLES'")
        declared = ", ".join(f"c{place} {kind} CHARACTER SET {charset}" for place, kind in enumerate(COLUMNS))
        cursor.execute(f"CREATE TABLE forms.t (id INT PRIMARY KEY AUTO_INCREMENT, {declared})")
        for value in SAMPLES[charset]:
            with suppress(pymysql.err.MySQLError):
                cursor.execute("INSERT INTO forms.t (c0, c1, c2) VALUES (%s, %s, %s)", [value, value, value * 200])
        connection.commit()
    return Reading(Downstream(port=server.port), "", "target")


@pytest.mark.slow
@pytest.mark.parametrize("charset", SAMPLES)
def test_bytes_without_a_character(server: DatabaseServer, charset: str) -> None:
    """Two texts of other bytes never look alike, in no character set: neither in a checksum nor as they are fetched."""
    reading = taken(server, charset)
    if reading is None:
        return
    with closing(reading):
        reading.begin()
        side = ComparedTable(reading, TableName(schema="forms", table="t"))
        shape = side.structure()
        assert shape is not None
        whole = side.layout = layout_of(shape, shape).sides[1]
        fetched = list(side.rows(KeyRange()))
        assert len(fetched) > 1
        for place in (1, 2, 3):
            name = f"c{place - 1}"
            ((different,),) = reading.rows(
                f"SELECT COUNT(DISTINCT HEX(CONCAT({name}))) FROM forms.t WHERE 1 = %s", (1,)
            )
            assert len({row[place] for row in fetched}) == different, name
            side.layout = replace(whole, columns=(replace(whole.columns[0], agrees=False), whole.columns[place]))
            sums = {
                side.chunk(KeyRange(above=((b"%d" % (int(row[0] or b"") - 1),),), upto=((row[0] or b"",),)))
                for row in fetched
            }
            assert (len(sums), all(each.is_whole for each in sums)) == (different, True), name
