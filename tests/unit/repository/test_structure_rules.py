"""When two structures are the same: what each equivalence covers and what it does not, and that nothing is left out silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.corpora import GoldenColumn, GoldenTable
from tests.harness.reference import Moment, Refusal
from tests.harness.structure_rules import EQUIVALENCES, Pair, against_reference, against_source, equivalence
from tests.harness.structures import Fact, Structure

COVERED = [
    ("mysql", "type", "int(11)", "int", "display width"),
    ("tidb", "type", "bigint(20) unsigned", "bigint unsigned", "display width"),
    ("mysql", "type", "year(4)", "year", "display width"),
    ("mysql", "type", "tinyint(1)", "tinyint", ""),
    ("mysql", "type", "int(5) unsigned zerofill", "int unsigned zerofill", ""),
    ("mysql", "type", "int(11)", "int unsigned", ""),
    ("mariadb", "type", "int(11)", "int", ""),
    ("mysql", "type", "varchar(10)", "varchar", ""),
    ("mariadb", "type", "json", "longtext", "json"),
    ("mysql", "type", "json", "longtext", ""),
    ("mysql", "type", "vector(3)", "longtext", "vector"),
    ("tidb", "type", "vector(3)", "longtext", ""),
    ("mysql", "key", "UNI", "PRI", "key of a table without primary key"),
    ("tidb", "key", "UNI", "PRI", ""),
    ("mysql", "key", "UNI", "MUL", ""),
    ("mysql", "nullable", "NO", "YES", ""),
    ("mariadb", "nullable", "NO", "YES", ""),
    ("mysql", "extra", "", "DEFAULT_GENERATED", "default expression"),
    ("mariadb", "extra", "DEFAULT_GENERATED", "", "default expression"),
    ("tidb", "extra", "DEFAULT_GENERATED", "", ""),
    ("mysql", "extra", "", "auto_increment", ""),
    ("mysql", "extra", "on update CURRENT_TIMESTAMP", "DEFAULT_GENERATED", ""),
    ("mariadb", "extra", "on update CURRENT_TIMESTAMP(3)", "on update current_timestamp(3)", "current timestamp"),
    ("mariadb", "extra", "on update CURRENT_TIMESTAMP", "on update current_timestamp()", "current timestamp"),
    ("mariadb", "extra", "on update CURRENT_TIMESTAMP(3)", "on update current_timestamp()", ""),
]


def column(name: str = "a", kind: str = "int", *, key: str = "", extra: str = "") -> GoldenColumn:
    """A column of the source."""
    return GoldenColumn(name=name, type=kind, nullable=False, key=key, extra=extra)


def pair(kind: str, what: str, was: str, is_: str, extra: str = "") -> Pair:
    """One property of a column of a table without primary key."""
    return Pair(kind=kind, source=column(extra=extra), has_primary_key=False, what=what, was=was, is_=is_)


@pytest.mark.parametrize(("kind", "what", "was", "is_", "name"), COVERED)
def test_what_an_equivalence_covers(kind: str, what: str, was: str, is_: str, name: str) -> None:
    """Each covers its own dialect's difference, and no other one."""
    assert equivalence(pair(kind, what, was, is_)) == name


@pytest.mark.parametrize(
    ("what", "was", "is_", "name"),
    [("nullable", "NO", "YES", "generated NOT NULL"), ("key", "PRI", "UNI", "generated primary key")],
)
def test_generated_columns_of_mariadb(what: str, was: str, is_: str, name: str) -> None:
    """What MariaDB does not take on a generated column may be missing there, and only there."""
    assert equivalence(pair("mariadb", what, was, is_, "STORED GENERATED")) == name
    assert equivalence(pair("mysql", what, was, is_, "STORED GENERATED")) == ""
    assert equivalence(pair("mariadb", what, was, is_, "DEFAULT_GENERATED")) == ""


def test_each_equivalence_is_listed() -> None:
    """Every name has a reason, and every reason is used."""
    used = {name for *_, name in COVERED if name}
    assert used | {"generated NOT NULL", "generated primary key"} == set(EQUIVALENCES)


def test_a_primary_key_is_one() -> None:
    """Where the source has a primary key no other index stands in for it."""
    found = Pair(kind="mysql", source=column(), has_primary_key=True, what="key", was="UNI", is_="PRI")
    assert equivalence(found) == ""


def golden(*columns: GoldenColumn) -> GoldenTable:
    """A table of the source."""
    types = {one.name: one.type for one in columns}
    return GoldenTable(
        schema="s", table="t", types=types, primary_key=(), generated=frozenset(), path=Path(), columns=columns
    )


def shown(**changed: str) -> Structure:
    """What a server shows of a table with one column."""
    properties = {"type": "int", "nullable": "NO", "key": "", "extra": ""} | changed
    facts = {Fact("s.t", "column a", what): value for what, value in properties.items()}
    return facts | {Fact("s.t", "", "columns"): "a", Fact("s.t", "", "definition"): str(sorted(properties.items()))}


def test_against_source() -> None:
    """A property that differs is told with both values; a table or column that is missing as well."""
    assert against_source(shown(), [golden(column())], "mysql", frozenset()).differences == ()
    wrong = against_source(shown(nullable="YES"), [golden(column())], "mysql", frozenset())
    assert wrong.differences == ("s.t: column a: nullable is 'YES'; the source has 'NO'",)
    assert against_source({}, [golden(column())], "mysql", frozenset()).differences
    assert against_source(shown(), [golden(column(), column("b"))], "mysql", frozenset()).differences
    assert not against_source({}, [golden(column())], "mysql", frozenset({"s.t"})).differences


def moment(structure: Structure, **refused: tuple[Refusal, ...]) -> Moment:
    """What a reference shows."""
    return Moment(
        structure=structure, refused={f"s.{name}": given for name, given in refused.items()}, by_hand=frozenset()
    )


def test_against_reference() -> None:
    """A server of the same kind has no excuse: every property counts, the definition where no other property says it."""
    assert not against_reference(shown(), moment(shown()), frozenset()).differences
    assert against_reference(shown(extra="x"), moment(shown()), frozenset()).differences == (
        "s.t: column a: extra is 'x'; the reference has ''",
    )
    definition = {Fact("s.t", "", "definition"): "other"}
    assert against_reference(shown() | definition, moment(shown()), frozenset()).differences
    assert against_reference(shown(), moment({}), frozenset()).differences == ("s.t is not at the reference",)
    assert against_reference({}, moment(shown()), frozenset()).differences == ("s.t is not at the target",)
    assert not against_reference({}, moment(shown()), frozenset({"s.t"})).differences


def test_what_a_reference_refused_is_told() -> None:
    """What differs in a table for which the reference refused a statement is told with the statement, and does not fail."""
    refused = (Refusal(statement="ALTER TABLE t x", error="no x"),)
    compared = against_reference(shown(extra="x"), moment(shown(), t=refused), frozenset())
    assert compared.differences == ()
    assert compared.left_out == (
        "s.t: column a: extra is 'x'; the reference has '', which refused 'ALTER TABLE t x' (no x)",
    )
