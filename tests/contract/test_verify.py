"""A comparison of source and target: what is equal is found equal, whatever differs is found, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from storage_consumer.errors import ConfigError
from storage_consumer.rows.comparison import RowDifference, TableResult, VerifyOutcome
from tests.contract.verify_rigs import VerifyRig
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
SOURCE = "tidb" if "tidb" in KINDS else "mysql"
"""Without a TiDB, a source that nobody writes to. MariaDB can be none: it has no JSON."""
EVERY_TYPE = """CREATE TABLE t (id BIGINT PRIMARY KEY, ti TINYINT, si SMALLINT UNSIGNED, mi MEDIUMINT, i INT, u BIGINT UNSIGNED, bo BOOLEAN,
    de DECIMAL(30,10), do DOUBLE, fl FLOAT, bi BIT(13), ye YEAR, da DATE, dt DATETIME(3), ts TIMESTAMP(6) NULL, tm TIME(2),
    ch CHAR(9), vc VARCHAR(40), ci VARCHAR(40) COLLATE utf8mb4_general_ci, la VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_bin, tx TEXT, lt LONGTEXT,
    bn BINARY(5), vb VARBINARY(40), bl BLOB, en ENUM('a', 'b', ''), se SET('p', 'q', 'r'), js JSON)"""
NULLS = (None,) * 27
ROWS = [
    (1, *NULLS),
    (2, -128, 65535, -8388608, -(2**31), 2**64 - 1, 1, "-12345678901234567890.0123456789", 1.5e15, 1.5, 5, 1901, "0000-00-00",
     "9999-12-31 23:59:59.999", "1970-01-01 00:00:01.000001", "-838:59:59", "", "", "", "", "", "", "", "", "", "", "", "{}"),
    (3, 0, 0, 0, 0, 0, 0, "0", 0.0, 0.0, 0, 0, "2024-02-29", "0000-00-00 00:00:00", "2038-01-19 03:14:07.999999", "00:00:00.01",
     "ä 表", "ends in blanks  ", "ÄA", "é", "😀 \\ ' \" \n", "l" * 3000, b"\0\xff", b"\0\xff\\'", b"\xff" * 300, "a", "p,r",
     '{"bb": [1, 1.0, 1e20, null, true], "a": "表 \\\\ \\" \\u0001", "ccc": {"z": -0.5, "y": {}}}'),
    (4, 1, 1, 1, 1, 1, 1, "0.0000000001", 1e-17, 3.4028235e38, 8191, 2155, "1000-01-01", "2024-02-29 00:00:00.1", "2000-01-01 00:00:00",
     "838:59:59", "x", "0", "NULL", "\xff", " ", "", b"a", b" ", b"", "b", "p,q,r", '[1, "x", []]'),
    (5, 2, 2, 2, 2, 2**63, 1, "1", 1.7976931348623157e308, 1e-38, 1, 2000, "2024-01-01", "2024-01-01", "2024-01-01", "1:2:3", "a", "a ", "a",
     "a", "a", "a", b"a\0", b"a", b"a", "a", "p", "3"),
    (6, 3, 3, 3, 3, 3, 0, "-1.5", 0.1 + 0.2, 0.1, 3, 1999, "2024-01-01", "2024-01-01", "2024-01-01", "1:2:3", "a", "a ", "a",
     "a", "a", "a", b"a\0", b"a", b"a", "a", "p", '"x"'),
]  # fmt: skip
INSERT = "INSERT INTO t VALUES (" + ", ".join(["%s"] * 28) + ")"


@pytest.fixture(params=[(SOURCE, target) for target in KINDS], ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """The source with each target."""
    source, target = request.param
    servers: Sequence[DatabaseServer] = [request.getfixturevalue(kind) for kind in dict.fromkeys((source, target))]
    return VerifyRig(servers[0], servers[-1])


@pytest.fixture
def types(rig: VerifyRig) -> VerifyRig:
    """A table with every type, at rest."""
    rig.both(EVERY_TYPE)
    rig.both(INSERT, rows=ROWS)
    rig.at_rest("t")
    return rig


def is_equal(result: TableResult) -> bool:
    """Whether a table was found equal, with nothing to say about it."""
    return (result.outcome, result.structure, result.differences, result.heal) == (VerifyOutcome.EQUAL, (), (), "")


def test_every_type_is_equal(types: VerifyRig) -> None:
    """The same rows are found equal in every form: all of them, their number."""
    for wishes in ({}, {"how": "quick"}, {"workers": 3, "chunk_rows": 2}):
        result = types.one("t", **wishes)
        assert is_equal(result), result
    assert types.one("t").rows == len(ROWS)


CHANGES = (
    ("UPDATE t SET i = i + 1 WHERE id = 3", "i", "3"),
    ("UPDATE t SET u = u - 1 WHERE id = 2", "u", "2"),
    ("UPDATE t SET de = de + 0.0000000001 WHERE id = 2", "de", "2"),
    ("UPDATE t SET do = 1.7976931348623155e308 WHERE id = 5", "do", "5"),
    ("UPDATE t SET do = 0.3 WHERE id = 6", "do", "6"),
    ("UPDATE t SET do = 1.1e-17 WHERE id = 4", "do", "4"),
    ("UPDATE t SET fl = 0.10000001 WHERE id = 6", "fl", "6"),
    ("UPDATE t SET bi = 4 WHERE id = 2", "bi", "2"),
    ("UPDATE t SET ye = 2000 WHERE id = 3", "ye", "3"),
    ("UPDATE t SET da = NULL WHERE id = 2", "da", "2"),
    ("UPDATE t SET dt = '2024-02-29 00:00:00.101' WHERE id = 4", "dt", "4"),
    ("UPDATE t SET ts = '1970-01-01 00:00:01.000002' WHERE id = 2", "ts", "2"),
    ("UPDATE t SET tm = '00:00:00.02' WHERE id = 3", "tm", "3"),
    ("UPDATE t SET ch = 'X' WHERE id = 4", "ch", "4"),
    ("UPDATE t SET vc = 'ends in blanks ' WHERE id = 3", "vc", "3"),
    ("UPDATE t SET vc = NULL WHERE id = 2", "vc", "2"),
    ("UPDATE t SET vc = '' WHERE id = 1", "vc", "1"),
    ("UPDATE t SET ci = 'äA' WHERE id = 3", "ci", "3"),
    ("UPDATE t SET la = 'e' WHERE id = 3", "la", "3"),
    ("UPDATE t SET tx = '' WHERE id = 4", "tx", "4"),
    ("UPDATE t SET lt = CONCAT(LEFT(lt, 2999), 'k') WHERE id = 3", "lt", "3"),
    ("UPDATE t SET bn = x'00fe' WHERE id = 3", "bn", "3"),
    ("UPDATE t SET vb = x'00ff5c' WHERE id = 3", "vb", "3"),
    ("UPDATE t SET bl = CONCAT(bl, x'00') WHERE id = 3", "bl", "3"),
    ("UPDATE t SET en = 'b' WHERE id = 3", "en", "3"),
    ("UPDATE t SET se = 'p' WHERE id = 3", "se", "3"),
    ("""UPDATE t SET js = '[1, "x", [], 0]' WHERE id = 4""", "js", "4"),
    ("UPDATE t SET js = 'null' WHERE id = 1", "js", "1"),
)  # fmt: skip


def test_one_value(types: VerifyRig) -> None:
    """One value that differs is found, with both images and the command that heals its row; whichever type it has."""
    rows = {str(row[0]): row for row in ROWS}
    for change, column, key in CHANGES:
        types.at_target(change)
        result = types.one("t", chunk_rows=3)
        assert result.outcome is VerifyOutcome.DIFFERENT, change
        (found,) = result.differences
        assert (found.kind, dict(found.key), list(found.source or {})) == ("differs", {"id": key}, [column])
        assert found.source != found.target
        assert (result.differing, result.missing, result.extra, result.structure) == (1, 0, 0, ())
        assert "table pause" in result.heal
        types.at_target(INSERT.replace("INSERT", "REPLACE"), rows=[rows[key]])
    assert is_equal(types.one("t"))


def test_minus_zero(rig: VerifyRig) -> None:
    """-0 is another value than 0, where the target keeps one."""
    rig.both("CREATE TABLE t (id INT PRIMARY KEY, d DOUBLE, f FLOAT)", "INSERT INTO t VALUES (1, 0, 0), (2, 0, 0)")
    rig.at_rest("t")
    assert is_equal(rig.one("t"))
    rig.at_target("UPDATE t SET d = -1e0 * d, f = d WHERE id = 2")
    ((negative,),) = rig.target.query("SELECT ATAN2(d, -1) < 0 FROM copy.t WHERE id = 2")
    assert rig.one("t").differing == int(negative)


def test_rows_that_are_missing_or_too_many(types: VerifyRig) -> None:
    """They are told apart, each with its row."""
    types.at_target(
        "DELETE FROM t WHERE id = 4", "INSERT INTO t (id, vc) VALUES (40, 'x')", "UPDATE t SET id = 60 WHERE id = 6"
    )
    result = types.one("t", chunk_rows=2)
    found = sorted((each.kind, each.key["id"]) for each in result.differences)
    assert found == [("extra", "40"), ("extra", "60"), ("missing", "4"), ("missing", "6")]
    assert (result.differing, result.missing, result.extra) == (0, 2, 2)


STRUCTURES = (
    ("ALTER TABLE t ALTER COLUMN i SET DEFAULT 7", "column i: default: 7 in the target, none at the source"),
    ("ALTER TABLE t MODIFY i BIGINT", "column i: type: "),
    ("ALTER TABLE t MODIFY i INT NOT NULL DEFAULT 0", "column i: NULL: no in the target, yes at the source"),
    (
        "ALTER TABLE t MODIFY vc VARCHAR(40) COLLATE utf8mb4_general_ci",
        "column vc: collation: utf8mb4_general_ci in the target",
    ),
    (
        "ALTER TABLE t MODIFY vc VARCHAR(41) COLLATE utf8mb4_bin",
        "column vc: type: varchar(41) in the target, varchar(40)",
    ),
    ("ALTER TABLE t ADD COLUMN more INT", "column more: the source does not have it"),
    ("ALTER TABLE t DROP COLUMN ye", "column ye: the target lacks it"),
    ("ALTER TABLE t ADD INDEX also (i, vc(3))", "index also (i, vc(3)): the source does not have it"),
    ("ALTER TABLE t ADD UNIQUE also (u)", "unique index also (u): the source does not have it"),
    ("ALTER TABLE t MODIFY ti TINYINT AFTER si", "order of the columns"),
)


def test_one_property_of_the_structure(rig: VerifyRig) -> None:
    """One property that differs is found, and is the only thing that is."""
    rig.both(EVERY_TYPE)
    rig.at_rest("t")
    for change, told in STRUCTURES:
        rig.at_target(change)
        result = rig.one("t")
        assert any(told in each for each in result.structure), (change, result.structure)
        # A column that takes no NULL has a default of its own here.
        assert len(result.structure) == (2 if "NOT NULL" in change else 1), result.structure
        assert (result.outcome, "table pause" in result.heal) == (VerifyOutcome.DIFFERENT, True)
        rig.at_target("DROP TABLE t", EVERY_TYPE)


def test_an_index_that_the_target_lacks(rig: VerifyRig) -> None:
    """It is found, and so is a key of another kind."""
    rig.both("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, UNIQUE KEY ua (a), KEY ia (a, id))")
    rig.at_rest("t")
    assert is_equal(rig.one("t"))
    rig.at_target("ALTER TABLE t DROP INDEX ua")
    assert rig.one("t").structure == ("unique index ua (a): the target lacks it",)


KEYS: dict[str, tuple[str, list[Any]]] = {
    "texts": ("a VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY", ["a", "A", "ä", "b", "a\t", "a!", "aa", "表", "😀", "", "%s", "'\\"]),
    "no_case": ("a VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY", ["a", "B", "ö ", "C", "b\t", "É", "表", "_", "%"]),
    "bytes": ("a VARBINARY(20) PRIMARY KEY", [b"", b"\0", b"\xff", b"a", b"a ", b"A", b"\\'%s"]),
    "moments": ("a DATETIME(2) PRIMARY KEY", ["0000-00-00", "2024-01-01", "2024-01-01 00:00:00.01", "9999-12-31"]),
    "decimals": ("a DECIMAL(40,20) PRIMARY KEY", ["-1e19", "0", "0.00000000000000000001", "99999999999999999999"]),
    "large": ("a BIGINT UNSIGNED PRIMARY KEY", [0, 2**53, 2**53 + 1, 2**63, 2**64 - 1]),
    "members": ("a ENUM('z', 'y', 'x') PRIMARY KEY", ["z", "y", "x"]),
    "doubles": ("a DOUBLE PRIMARY KEY", [0.1, -1e300, 1e-300, 0.1 + 0.2]),
    "unique": ("a INT NOT NULL UNIQUE", [1, 5, -3]),
    "nullable": ("a INT UNIQUE", [1, 5, -3, None]),
    "none": ("a INT", [1, 1, 1, 2, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(rig: VerifyRig, kind: str) -> None:
    """Rows are found under keys of every kind: equal, and each of them missing, too many, and changed; so with chunks of one row."""
    column, values = KEYS[kind]
    rig.both(f"CREATE TABLE t ({column}, n INT)")
    rig.both("INSERT INTO t VALUES (%s, %s)", rows=[(value, number) for number, value in enumerate(values)])
    rig.at_rest("t")
    for chunk in (1, 2, 1000):
        assert is_equal(rig.one("t", chunk_rows=chunk))
    rig.at_target("UPDATE t SET n = -1 WHERE n = 1", "DELETE FROM t WHERE n = 0")
    rig.at_source("DELETE FROM t WHERE n = 2")
    rig.at_rest("t")
    counts = [(r.differing, r.missing, r.extra) for r in (rig.one("t", chunk_rows=chunk) for chunk in (1, 2, 1000))]
    # Where nothing tells rows apart, a changed one is one too few and one too many.
    assert counts == [(0, 2, 2) if kind in ("nullable", "none") else (1, 1, 1)] * 3


def test_a_key_in_another_spelling(rig: VerifyRig) -> None:
    """A key that the target's collation finds equal is one row that differs, not one too few and one too many."""
    rig.both(
        "CREATE TABLE t (a VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, b VARCHAR(5), PRIMARY KEY (a))".replace(
            " PRIMARY KEY,", ",", 1
        )
    )
    rig.both("INSERT INTO t VALUES ('abc', 'x'), ('b', 'x')")
    rig.at_rest("t")
    rig.at_target("UPDATE t SET a = 'ABC' WHERE b = 'x' AND a = 'abc'")
    (found,) = rig.one("t").differences
    assert found == RowDifference(kind="differs", key={"a": "abc"}, source={"a": "abc"}, target={"a": "ABC"})


def test_hostile_names(rig: VerifyRig) -> None:
    """Names and values reach the servers as they are."""
    name, column = "t`%s 'x\\ ", "c` %d;"
    name = name.rstrip()
    quoted, inner = "`" + name.replace("`", "``") + "`", "`" + column.replace("`", "``") + "`"
    rig.both(f"CREATE TABLE {quoted} ({inner} VARCHAR(40) PRIMARY KEY, v TEXT)")
    rig.both(
        f"INSERT INTO {quoted} VALUES (%s, %s)".replace("%s 'x", "%%s 'x").replace("%d;", "%%d;"),
        rows=[("'; DROP TABLE x; --", "%s"), ("\\", "{}")],
    )
    rig.at_rest(name)
    assert is_equal(rig.one(name, chunk_rows=1))
    rig.at_target(f"DELETE FROM {quoted} LIMIT 1")
    assert rig.one(name, chunk_rows=1).missing == 1


PLANTED = (
    ("DELETE FROM t WHERE id = %s", "missing"),
    ("INSERT INTO t SELECT id + 100000, v, ci, n, d, moment FROM t WHERE id = %s", "extra"),
    ("UPDATE t SET v = 'w' WHERE id = %s", "differs"),
    ("UPDATE t SET ci = 'WORD' WHERE id = %s", "differs"),
    ("UPDATE t SET ci = 'wörd' WHERE id = %s", "differs"),
    ("UPDATE t SET n = NULL WHERE id = %s", "differs"),
    ("UPDATE t SET d = -1e0 * d WHERE id = %s", "minus zero"),
    ("UPDATE t SET moment = '2024-02-29 12:00:00.001' WHERE id = %s", "differs"),
    ("UPDATE t SET v = 'v ' WHERE id = %s", "differs"),
    ("UPDATE t SET n = ' ' WHERE id = %s", "differs"),
)
"""Statement → what a row is found to be after it; one value, a letter's case, an accent, NULL for '', -0, a millisecond, blanks."""


def test_a_thousand_planted_differences(rig: VerifyRig) -> None:
    """A hundred rows of each kind: each is found, none is invented, and so are a default and an index."""
    rig.both(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), ci VARCHAR(9) COLLATE utf8mb4_general_ci, n VARCHAR(9), d DOUBLE, "
        "moment DATETIME(3))",
        "INSERT INTO t VALUES (%s, 'v', 'word', '', 0, '2024-02-29 12:00:00')",
        rows=[(number,) for number in range(10_000)],
    )
    rig.at_rest("t")
    chosen = random.Random(9).sample(range(10_000), 1000)  # noqa: S311 - not for secrets
    for place, (statement, _) in enumerate(PLANTED):
        rig.at_target(statement, rows=[(number,) for number in chosen[place::10]])
    rig.at_target("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'x'", "ALTER TABLE t ADD INDEX also (n)")
    ((negative,),) = rig.target.query("SELECT COUNT(*) FROM copy.t WHERE ATAN2(d, -1) < 0")
    result = rig.one("t", chunk_rows=1000)
    assert (result.missing, result.extra, result.differing) == (100, 100, 700 + negative)
    assert negative in (0, 100)
    # MariaDB shows a default with its quotation marks.
    assert [each.replace("'", "") for each in result.structure] == [
        "column v: default: x in the target, none at the source",
        "index also (n): the source does not have it",
    ]


def test_only_the_tables_that_are_meant(rig: VerifyRig) -> None:
    """A rule chooses; where it means none, that is an error."""
    rig.both("CREATE TABLE orders (id INT PRIMARY KEY)")
    rig.both("CREATE TABLE items (id INT PRIMARY KEY)")
    rig.at_rest("orders", "items")
    assert [*rig.compared(tables="shop.o*")] == ["orders"]
    with pytest.raises(ConfigError, match="no table that is meant by --table other"):
        rig.compared(tables="other.*")


def test_a_table_that_one_side_lacks(rig: VerifyRig) -> None:
    """It differs, whichever side it is; a table that neither has is as at the source."""
    rig.at_source("CREATE TABLE here (id INT PRIMARY KEY)")
    rig.at_target("CREATE TABLE there (id INT PRIMARY KEY)")
    rig.at_rest("here", "there", "nowhere")
    found = rig.compared()
    assert found["here"].structure == ("the target lacks the table",)
    assert found["there"].structure == ("the source does not have the table",)
    assert (found["nowhere"].outcome, found["nowhere"].notes) == (VerifyOutcome.EQUAL, ("neither side has the table",))
