"""Expressions of which all servers make the same values: tried with every sort of column that the table of them allows."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import connect
from storage_consumer.target.ddl.column_rules import PROVEN
from tests.harness.servers import DatabaseServer, tidb_program

pytestmark = pytest.mark.server
COLUMNS = {"integer": ("`i`", "`u`"), "text": ("`s`", "`c`"), "day": ("`d`",)}
TYPES = "i INT, u BIGINT, s VARCHAR(40) COLLATE utf8mb4_general_ci, c CHAR(9) COLLATE utf8mb4_bin, d DATE"
ROWS = (
    ("0", "0", "", "", "2024-01-31"),
    ("-7", "3000000000", "Straße ẞ", "a", "1999-12-31"),
    ("2147483647", "-3", "თბილისი", "ⴀ", "0000-00-00"),
    ("-2147483648", "4", "😀👨‍👩‍👧 e\u0301", "😀", "2024-02-30"),
    ("12", "-12", " a  ", "A  ", "2023-00-10"),
    (None, "1", None, "x", None),
    ("5", None, "\\'\"\t\n%_\x01", None, "9999-12-31"),
)
SHAPES: dict[str, tuple[str, ...]] = {
    **{sign: (f"{{0}} {sign} {{1}}", f"{{0}} {sign} 3") for sign in ("+", "-", "*", "%", "DIV")},
    **{name: (f"{name}({{0}}, {{1}})", f"{name}({{0}}, 3)") for name in ("MOD", "GREATEST", "LEAST")},
    **dict.fromkeys(("ABS", "CHAR_LENGTH", "DAYOFMONTH", "LENGTH", "MONTH", "REVERSE", "TRIM", "LAST_DAY", "TO_DAYS", "CRC32", "YEAR"), ("{name}({0})",)),
    "COALESCE": ("COALESCE({0}, {1})", "COALESCE(NULL, {0}, {1})"),
    "CONCAT": ("CONCAT({0}, '-', {1})", "CONCAT({0})"),
    "IFNULL": ("IFNULL({0}, {1})",),
    "LEFT": ("LEFT({0}, 2)", "LEFT({0}, 0)"),
    "RIGHT": ("RIGHT({0}, 2)", "RIGHT({0}, 99)"),
    "SUBSTRING": ("SUBSTRING({0}, 2, 3)", "SUBSTRING({0}, -2)"),
}  # fmt: skip
NUMBERS = frozenset(
    (
        "+",
        "-",
        "*",
        "%",
        "DIV",
        "MOD",
        "ABS",
        "GREATEST",
        "LEAST",
        "CHAR_LENGTH",
        "CRC32",
        "DAYOFMONTH",
        "LENGTH",
        "MONTH",
        "TO_DAYS",
        "YEAR",
    )
)


def expressions() -> dict[str, str]:
    """Each expression, and the type of its column; where numbers meet, one that holds all of them."""
    found = {}
    for name, sorts in PROVEN.items():
        columns = [column for sort in sorted(sorts) for column in COLUMNS[sort]]
        for shape, (one, other) in product(SHAPES[name], product(columns, columns)):
            found[shape.format(one, other, name=name)] = "DECIMAL(40,0)" if name in NUMBERS else "VARCHAR(200)"
    return found


def values(server: DatabaseServer) -> dict[str, list[str | None]]:
    """What the server makes of each expression, row by row."""
    found = {}
    with closing(connect(Downstream(port=server.port), "", ddl=True)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE x DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for expression, kind in expressions().items():
            cursor.execute("USE x")
            cursor.execute("DROP TABLE IF EXISTS x.t")
            cursor.execute(
                f"CREATE TABLE x.t (n INT PRIMARY KEY, {TYPES}, g {kind} GENERATED ALWAYS AS ({expression}) VIRTUAL) CHARSET utf8mb4 COLLATE utf8mb4_bin"
            )
            for number, row in enumerate(ROWS):
                cursor.execute("INSERT INTO x.t (n, i, u, s, c, d) VALUES (%s, %s, %s, %s, %s, %s)", (number, *row))
            cursor.execute("SELECT CAST(g AS CHAR) FROM x.t ORDER BY n")
            found[expression] = [None if value is None else str(value) for (value,) in cursor.fetchall()]
    return found


if tidb_program():

    @pytest.mark.slow
    def test_all_servers_agree(mariadb: DatabaseServer, mysql: DatabaseServer, tidb: DatabaseServer) -> None:
        """What is not noted at a CREATE TABLE is what the source has, in the sessions in which statements run."""
        assert PROVEN.keys() == SHAPES.keys()
        source = values(tidb)
        for target in (mariadb, mysql):
            found = values(target)
            assert {e: (found[e], source[e]) for e in source if found[e] != source[e]} == {}
