"""A workload as statements, and what is put in by hand before a server of another kind gets them."""

from __future__ import annotations

import pytest

from tests.harness.reference import BY_HAND, by_hand, statements


def test_statements() -> None:
    """A statement ends where a line ends with a semicolon, and may hold line breaks; marks are lines of their own."""
    text = (
        "create table t (a text default 'x;y');\n-- cut\ninsert into t values ('one\n-- two\n');\n\n-- flush\nbegin;\n"
    )
    assert list(statements(text)) == [
        "create table t (a text default 'x;y')",
        "-- cut",
        "insert into t values ('one\n-- two\n')",
        "-- flush",
        "begin",
    ]


@pytest.mark.parametrize(
    ("kind", "typed", "instead", "names"),
    [
        ("mysql", "create table g (id int primary key nonclustered, v int)", "create table g (id int primary key, v int)", {"clustered"}),
        ("mysql", "alter table t alter index i invisible", None, set()),
        ("mariadb", "alter table t alter index i invisible", "alter table t alter index i ignored", {"invisible index"}),
        ("mariadb", "create table x (a int, unique key f ((lower(e))), key g ((upper(s)), a), key h (a))", "create table x (a int, key h (a))", {"expression index"}),
        ("mysql", "create table x (a int, key g ((upper(s)), a))", None, set()),
        ("mysql", "alter table n add constraint c check (v > 0)", "", {"check constraint"}),
        ("mysql", "create table `😀` (a int)", "", {"far name"}),
        ("mysql", "create table c (s char(2) character set latin1)", "create table c (s char(2) character set latin1 collate latin1_bin)", {"collation of a charset"}),
        ("mysql", "create table c (s char(2) character set utf8mb4 collate utf8mb4_bin)", None, set()),
    ],
)  # fmt: skip
def test_by_hand(kind: str, typed: str, instead: str | None, names: set[str]) -> None:
    """Each change is put into what it is for only; an empty text is not executed."""
    assert by_hand(typed, kind) == (typed if instead is None else instead, names)
    assert by_hand(typed, "tidb") == (typed, set())


def test_each_change_by_hand_has_a_reason() -> None:
    """TiDB is told nothing by hand, and whatever the others are told says why."""
    assert all(one.name and one.reason and "tidb" not in one.kinds for one in BY_HAND)
