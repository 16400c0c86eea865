"""Keys that a server finds equal are in one bucket, held against the server's own weights."""

from __future__ import annotations

import sys
import unicodedata
from collections import defaultdict

import pytest

from storage_consumer.rows.fitting import TargetColumn
from storage_consumer.rows.row_keys import coarse_image
from tests.harness.servers import DatabaseServer

SIGNS = [
    chr(code)
    for code in range(1, sys.maxunicode + 1)
    if not 0xD800 <= code <= 0xDFFF
    and (code < 0x800 or unicodedata.category(chr(code))[0] == "N" or unicodedata.numeric(chr(code), None) is not None)
]


@pytest.mark.server
@pytest.mark.parametrize(
    "collation",
    [
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "utf8mb4_swedish_ci",
        "utf8mb4_unicode_520_ci",
        "utf8mb4_uca1400_ai_ci",
    ],
)
def test_signs_of_one_weight_have_one_image(mariadb: DatabaseServer, collation: str) -> None:
    """Signs, numerals of every script among them, that a collation finds equal have equal images (C19)."""
    column = TargetColumn(name="c", data_type="varchar", nullable=False, binary_collation=False, collation=collation)
    images: dict[bytes, dict[str, str]] = defaultdict(dict)
    values = ",".join(f"({ord(sign)}, _utf32 x'{ord(sign):08x}')" for sign in (*SIGNS, "\U0001f600", "\u2e93"))
    mariadb.query("CREATE DATABASE d")
    mariadb.query("CREATE TABLE d.t (n INT PRIMARY KEY, c CHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)")
    mariadb.query(f"INSERT INTO d.t VALUES {values}")
    for number, weight in mariadb.query(f"SELECT n, WEIGHT_STRING(c COLLATE {collation}) FROM d.t"):
        images[weight].setdefault(coarse_image(chr(number), beyond_bmp=column.beyond_bmp), hex(number))
    assert len(images) > 500
    assert [found for found in images.values() if len(found) > 1] == []
