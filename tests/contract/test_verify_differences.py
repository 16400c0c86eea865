"""Differences that `verify` has to find, and such as it must not invent, beside those of `test_verify_structure`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.store import operated
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from tests.contract.verify_rigs import VerifyRig
from tests.harness.servers import KINDS

pytestmark = pytest.mark.server
PAIRS = [(KINDS[-1], kind) for kind in KINDS]


@pytest.fixture(params=PAIRS, ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """A source, which is a TiDB where there is one, and each server as the target."""
    source, target = request.param
    return VerifyRig(request.getfixturevalue(source), request.getfixturevalue(target))


def planted(rig: VerifyRig, create: str, *changes: str) -> TableResult:
    """Create a table on both sides, find it equal, change it in the target, and compare again."""
    rig.both(create)
    rig.at_rest("t")
    before = rig.one("t")
    assert (before.outcome, before.structure) == (VerifyOutcome.EQUAL, ())
    rig.at_target(*changes)
    return rig.one("t")


@pytest.mark.parametrize("rig", [pair for pair in PAIRS if "mariadb" not in pair], ids="-".join, indirect=True)
@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("", "ALTER TABLE t ADD UNIQUE KEY x ((lower(v)))"),
        (", UNIQUE KEY x ((lower(v)))", "ALTER TABLE t DROP INDEX x"),
    ],
)
def test_unique_indexes_over_expressions(rig: VerifyRig, key: str, change: str) -> None:
    """With one too many REPLACE removes rows, so both are differences wherever the server has such indexes."""
    found = planted(rig, f"CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9){key})", change)
    assert found.outcome is VerifyOutcome.DIFFERENT
    assert "unique index x" in found.structure[0]


def test_an_index_over_another_prefix(rig: VerifyRig) -> None:
    """It begins as no longer one does, so no foreign key explains it."""
    found = planted(
        rig,
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(30), b INT, KEY ab (a(10), b))",
        "ALTER TABLE t ADD INDEX x (a(5))",
    )
    assert found.structure == ("index x (a(5)): the source does not have it",)


def test_a_default_of_an_empty_text(rig: VerifyRig) -> None:
    """It is told from no default."""
    found = planted(
        rig, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "ALTER TABLE t MODIFY v VARCHAR(9) DEFAULT ''"
    )
    assert found.structure == ("column v: default: '' in the target, none at the source",)


def test_a_table_that_the_source_lacks(rig: VerifyRig) -> None:
    """No export of the source can hold it, so no load is proposed."""
    rig.at_target("CREATE TABLE t (id INT PRIMARY KEY)")
    rig.at_rest("t")
    found = rig.one("t")
    assert found.structure == ("the source does not have the table",)
    assert "storage-consumer load" not in found.heal


def test_bytes_that_are_no_character(rig: VerifyRig) -> None:
    """They are told from a question mark, which a server shows in their place; in a key as well, where ranges begin and end with them."""
    charset, no_character = ("latin1", "FF") if rig.target.kind == "tidb" else ("gbk", "FE5A")
    create = f"CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, v VARCHAR(9)) CHARACTER SET {charset} COLLATE {charset}_bin"
    rig.both(create, "INSERT INTO t VALUES ('a', '?'), ('?', 'b')")
    rig.at_rest("t")
    assert rig.one("t").outcome is VerifyOutcome.EQUAL
    rig.at_target(f"UPDATE t SET v = x'{no_character}' WHERE k = 'a'")
    (found,) = rig.one("t").differences
    shown = f"_{charset} 0x{no_character.lower()}"
    assert (found.kind, found.source, found.target) == ("differs", {"v": "?"}, {"v": shown})
    rig.at_target(
        "UPDATE t SET v = '?' WHERE k = 'a'", "INSERT INTO t VALUES (%s, 'c')", rows=[(f"{n}",) for n in range(2_000)]
    )
    rig.at_target(f"UPDATE t SET k = CONCAT(x'{no_character}', k) WHERE v = 'c'")
    result = rig.one("t", chunk_rows=500)
    assert (result.differing, result.missing, result.extra) == (0, 0, 2_000)
    assert result.differences[0].key["k"].startswith(shown)


def test_a_view(rig: VerifyRig) -> None:
    """Both sides have it, so it is equal, though TiDB says of each of its columns that it may be NULL; as a table on one side it differs."""
    rig.both("CREATE TABLE base (id INT PRIMARY KEY, v INT)", "CREATE VIEW t AS SELECT id, v FROM base")
    rig.at_rest("t")
    found = rig.one("t")
    assert (found.outcome, found.structure) == (VerifyOutcome.EQUAL, ())
    assert "it is a view, which has no rows of its own" in found.notes
    rig.at_target("DROP VIEW t", "CREATE TABLE t (id INT NOT NULL, v INT)")
    found = rig.one("t")
    assert found.outcome is VerifyOutcome.DIFFERENT
    assert "it is a view only at the source" in found.structure


def test_a_difference_stays_until_another_comparison_is_finished(rig: VerifyRig) -> None:
    """Neither one that begins nor one that does not come about takes it out of what is told; one that is finished does."""
    found = planted(rig, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with closing(operated(rig.settings, "")) as desk:
        for outcome, told in (
            (VerifyOutcome.UNFINISHED, VerifyOutcome.DIFFERENT),
            (VerifyOutcome.NOT_COMPARED, VerifyOutcome.DIFFERENT),
            (VerifyOutcome.EQUAL, VerifyOutcome.EQUAL),
        ):
            desk.verified.put(rig.key("t"), replace(found, outcome=outcome))
            assert [each.outcome for each in desk.verified.standing()] == [told]


def test_words_of_a_difference_stay_while_another_comparison_runs(rig: VerifyRig) -> None:
    """What was found, or why a table is in doubt, is told until that one is finished, however often it begins; what it found so far can be resumed."""
    found = planted(rig, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    doubt = replace(
        found, checkpoint=0, outcome=VerifyOutcome.DIFFERENT, reason="its column v was dropped", heal="load it"
    )
    begun = replace(found, outcome=VerifyOutcome.UNFINISHED, after=("aa",))
    with closing(operated(rig.settings, "")) as desk:
        desk.verified.put(rig.key("t"), doubt)
        for _ in range(2):
            desk.verified.put(rig.key("t"), begun)
            assert desk.verified.standing() == [doubt]
            assert desk.verified.all() == [begun]
        desk.verified.put(rig.key("t"), replace(found, outcome=VerifyOutcome.EQUAL))
        assert [(each.outcome, each.reason) for each in desk.verified.standing()] == [(VerifyOutcome.EQUAL, "")]
        desk.verified.put(rig.key("t"), doubt)
        rig.target.query("UPDATE storage_consumer.table_progress SET state = 'dropped'")
        assert desk.verified.standing() == []
