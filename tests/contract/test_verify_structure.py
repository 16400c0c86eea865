"""Structures on real servers: what each kind of server only shows differently is no difference, and whatever is one is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage_consumer.rows.comparison import VerifyOutcome
from tests.contract.verify_rigs import VerifyRig
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
PAIRS = [(source, target) for source in KINDS for target in KINDS if source != target or len(KINDS) == 1]


@pytest.fixture(params=PAIRS, ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """Each kind of server as the source of each other one."""
    source, target = request.param
    servers: Sequence[DatabaseServer] = [request.getfixturevalue(kind) for kind in dict.fromkeys((source, target))]
    return VerifyRig(servers[0], servers[-1])


DEFAULTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "an emoji": ("VARCHAR(20)", "'😀'", ("'?'", "'😁'", "'😀😀'", "''", "NULL")),
    "a question mark": ("VARCHAR(20)", "'?'", ("'😀'", "'!'")),
    "an emoji as a member": ("ENUM('😀', 'x', '?y')", "'😀'", ("'x'", "'?y'")),
    "emojis in a set": ("SET('😀', 'x')", "'😀,x'", ("'x'", "'😀'")),
    "a line feed": ("VARCHAR(20)", r"'a\nb'", (r"'a\rb'", "'anb'", r"'a\\nb'")),
    "a carriage return": ("VARCHAR(20)", r"'a\rb'", (r"'a\nb'", "'arb'", r"'a\\rb'")),
    "other characters": ("VARCHAR(20)", r"'\t\Z\\''\"%s\0'", (r"'\t\Z\\''\"%s'", r"'\t\Z\\\\''\"%s\0'")),
    "bytes of a fixed length": ("BINARY(4)", "'ab'", ("'ac'", r"'ab\0c'", "'0x61'")),
    "bytes": ("VARBINARY(9)", "'ab'", ("'0x6162'", r"'ab\0'", "'AB'")),
    "today": ("DATE", "(CURRENT_DATE)", ("'2024-01-01'", "NULL")),
    "blanks around": ("CHAR(3)", "' x '", ("'x'", "'x '")),
    "blanks behind": ("VARCHAR(3)", "'x '", ("'x'", "'x  '")),
    "a year of two digits": ("YEAR", "70", ("71", "2070")),
    "parentheses": ("VARCHAR(9)", "'f(X)'", ("'f(x)'", "'g(X)'", "'f'")),
    "NULL as a text": ("VARCHAR(9)", "'NULL'", ("NULL", "'null'")),
    "hexadecimal digits": ("VARCHAR(9)", "'0x6162'", ("'ab'",)),
    "bytes that are no text": ("VARBINARY(9)", "x'ff00'", ("x'ff01'", "x'ff'", "NULL")),
    "bytes that are no text, filled up": ("BINARY(4)", "x'ff00'", ("x'ff01'", "'?'")),
    "a moment": ("TIMESTAMP(3) NULL", "'2024-01-01 00:00:00.5'", ("'2024-01-01 01:00:00.5'", "'2024-01-01 00:15:00.5'", "NULL")),
    "a time that is no moment": ("DATETIME", "'2024-01-01 00:00:00'", ("'2024-01-01 01:00:00'", "CURRENT_TIMESTAMP")),
    "a number": ("DECIMAL(9, 3)", "-1.5", ("1.5", "-1.51")),
    "bits": ("BIT(9)", "b'101'", ("b'100'", "0")),
    "another character set": ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin", "'é'", ("'e'", "'è'")),
}  # fmt: skip
"""Type, default, and others that are not the same."""


def test_defaults(rig: VerifyRig) -> None:
    """The same default on both sides is no difference, however servers show it; another one is, and it is named."""
    columns = {f"c{number}": each for number, each in enumerate(DEFAULTS.values())}
    declared = ", ".join(f"{name} {kind} DEFAULT {default}" for name, (kind, default, _) in columns.items())
    rig.both(f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) COLLATE utf8mb4_bin")
    rig.at_rest("t")
    result = rig.one("t")
    assert (result.outcome, result.structure) == (VerifyOutcome.EQUAL, ())
    for name, (kind, default, others) in columns.items():
        for other in others:
            rig.at_target(f"ALTER TABLE t MODIFY {name} {kind} DEFAULT {other}")
            found = rig.one("t").structure
            assert [each.split(": default: ")[0] for each in found] == [f"column {name}"], (kind, other, found)
        rig.at_target(f"ALTER TABLE t MODIFY {name} {kind} DEFAULT {default}")
    assert rig.one("t").structure == ()


EXPRESSIONS = {
    "VARCHAR(99)": ("(uuid())", "(rand())", "(replace(upper(uuid()), '-', ''))", "(date_format(now(), '%Y-%m-%d'))"),
    "DATETIME(3)": ("CURRENT_TIMESTAMP(3)", "'2024-01-01 00:00:00'"),
    "BINARY(16)": ("'x'", "(unhex(replace(uuid(), '-', '')))", "(uuid_to_bin(uuid()))"),
}
"""Type → defaults, each another one; the last two of the bytes are one, which not every server has in both spellings."""


def test_expressions_in_defaults(rig: VerifyRig) -> None:
    """One expression is equal however servers write it, and is told from each other one."""
    kinds = {rig.source.kind, rig.target.kind}
    for kind, defaults in EXPRESSIONS.items():
        there = [each for each in defaults if not ("unhex" in each and "tidb" in kinds)]
        there = [each for each in there if not ("uuid_to_bin" in each and "mariadb" in kinds)]
        rig.at_source(f"CREATE TABLE t (id INT PRIMARY KEY, c {kind} DEFAULT {there[0]})")
        for default in there:
            rig.at_target("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INT PRIMARY KEY, c {kind} DEFAULT {default})")
            rig.at_rest("t")
            found = [each.split(": ")[1] for each in rig.one("t").structure]
            assert found == ([] if default == there[0] else ["default"]), (there[0], default)
        rig.at_source("DROP TABLE t")


def test_the_moment_of_a_default(rig: VerifyRig) -> None:
    """It is one, whatever the time zone of the session that made it; another one by an hour is a difference."""
    create = "CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL DEFAULT '{}')"
    rig.at_source("SET time_zone = '+08:00'", create.format("2024-01-01 08:00:00"))
    rig.at_target(create.format("2024-01-01 00:00:00"))
    rig.at_rest("t")
    assert rig.one("t").structure == ()
    rig.at_target("ALTER TABLE t MODIFY ts TIMESTAMP NULL DEFAULT '2024-01-01 01:00:00'")
    assert rig.one("t").structure == (
        "column ts: default: 2024-01-01 01:00:00 in the target, 2024-01-01 00:00:00 at the source",
    )


def test_what_a_key_is(rig: VerifyRig) -> None:
    """A unique key is no primary key, a column that counts no longer is another one, and an index that a longer one begins with is missed."""
    create = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b INT, KEY a (a), KEY ab (a, b))"
    rig.both(create)
    rig.at_rest("t")
    assert rig.one("t").structure == ()
    for change, found in (
        (("id INT AUTO_INCREMENT", "id INT"), ["column id"]),
        (("PRIMARY KEY", "UNIQUE"), ["primary key (id)", "unique index id (id)"]),
        (("KEY a (a), ", ""), ["index a (a)"]),
    ):
        rig.at_target("DROP TABLE t", create.replace(*change))
        # Without a primary key, TiDB and MySQL say that the column may be no NULL either.
        assert [each.split(": ")[0] for each in rig.one("t").structure] == found


def test_the_index_of_a_foreign_key(rig: VerifyRig) -> None:
    """MySQL takes it away where another one serves as well, and TiDB does not."""
    parent = "CREATE TABLE p (id INT PRIMARY KEY)"
    rig.both(parent, "CREATE TABLE t (id INT PRIMARY KEY, pid INT, CONSTRAINT t_p FOREIGN KEY (pid) REFERENCES p (id))")
    rig.both("CREATE INDEX mine ON t (pid, id)")
    rig.at_rest("t")
    assert rig.one("t").structure == ()
    rig.at_target("ALTER TABLE t DROP FOREIGN KEY t_p")
    assert rig.one("t").structure == ()
    rig.at_target("DROP INDEX mine ON t")
    assert [each.split(": ")[0] for each in rig.one("t").structure] == ["index mine (pid, id)"]


def test_views(rig: VerifyRig) -> None:
    """What a server makes of a view's texts, sums and counts is no difference; a column that one side lacks is."""
    view = "CREATE VIEW t AS SELECT v, COUNT(*) AS n, SUM(d) AS s, CONCAT(v, 'x') AS c, 'text' AS w, NOW() AS m, 1.5 * MAX(id) AS f FROM base GROUP BY v"
    rig.both("CREATE TABLE base (id INT PRIMARY KEY, v VARCHAR(20), d DECIMAL(9, 2))", view)
    rig.at_rest("t")
    found = rig.one("t")
    assert (found.outcome, found.structure) == (VerifyOutcome.EQUAL, ())
    rig.at_target("DROP VIEW t", view.replace("AS c", "AS other"))
    assert rig.one("t").structure == ("column c: the target lacks it", "column other: the source does not have it")


def test_members(rig: VerifyRig) -> None:
    """A character that a server cannot show among the members of an ENUM stands for one of its kind, and for no other."""
    members = ("'😀', 'x?'", "'😀', 'y'", "'表', 'x?'", "'😀😀', 'x?'", "'x?', '😀'")
    rig.both(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({members[0]}))")
    rig.at_rest("t")
    assert rig.one("t").structure == ()
    for other in members[1:]:
        rig.at_target("DROP TABLE t", f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({other}))")
        assert [each.split(": type: ")[0] for each in rig.one("t").structure] == ["column e"], other


def test_a_number_that_may_be_negative(rig: VerifyRig) -> None:
    """ZEROFILL is no difference, as the UNSIGNED is that it means."""
    rig.both("CREATE TABLE t (id INT PRIMARY KEY, z INT(8) UNSIGNED ZEROFILL, d DECIMAL(8, 2) ZEROFILL)")
    rig.at_rest("t")
    assert rig.one("t").structure == ()
    rig.at_target("ALTER TABLE t MODIFY z INT UNSIGNED")
    assert rig.one("t").structure == ()
    rig.at_target("ALTER TABLE t MODIFY z INT")
    (found,) = rig.one("t").structure
    assert found.startswith("column z: type: int")


def test_an_index_that_keeps_nothing_unique(rig: VerifyRig) -> None:
    """In the place of a unique one it is a difference, though it is over the same column."""
    rig.both("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, UNIQUE KEY u (n))")
    rig.at_rest("t")
    rig.at_target("ALTER TABLE t DROP KEY u", "ALTER TABLE t ADD KEY u (n)")
    assert rig.one("t").structure == (
        "unique index u (n): the target lacks it",
        "index u (n): the source does not have it",
    )


if "tidb" in KINDS:  # else there are no partial indexes

    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tidb"])
    def test_a_partial_index(kind: str, request: pytest.FixtureRequest) -> None:
        """In the place of one that is unique for some rows, an index that is not unique is no difference; one for all rows is."""
        rig = VerifyRig(request.getfixturevalue("tidb"), request.getfixturevalue(kind))
        rig.at_source("CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, UNIQUE KEY u (n) WHERE m > 1)")
        rig.at_target("CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, KEY u (n))")
        rig.at_rest("t")
        result = rig.one("t")
        assert (result.structure, "partial index" in result.alike) == ((), True)
        rig.at_target("ALTER TABLE t DROP KEY u, ADD UNIQUE KEY u (n)")
        assert len(rig.one("t").structure) == 2
