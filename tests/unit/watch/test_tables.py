"""The list of tables: filter, order and pages."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from storage_consumer.model import TableName
from storage_consumer.watch.page_views import PAGE, Listing, Row, ViewerQuery, listed, rows_of, table_path
from storage_consumer.watch.recorder import TableRows
from storage_consumer.watch.report import Table
from tests.unit.watch.test_status import at, report, snapshot, status, table

READ = {
    "d.slow": TableRows(rows=900, per_second=0.5),
    "d.Fast": TableRows(rows=40, per_second=7.0),
    "d.late": TableRows(rows=50, per_second=None),
}


def rows(*tables: Table, **more: object) -> tuple[Row, ...]:
    """The list of all tables."""
    return rows_of(status(snapshot(*tables, **more)), READ)


def names(listing: Listing) -> list[str]:
    """The tables that are shown, in their order, without the database."""
    return [row.name.table for row in listing.rows]


FEED = rows(
    table("slow", checkpoint=at(60), follows=False),
    table("Fast"),
    table("broken", "halted", checkpoint=at(600), error="x"),
    table("poor", "lost", checkpoint=at(700), error="y"),
    table("late", checkpoint=at(30)),
    table("gone", "dropped"),
    table("left", "excluded"),
    table("new", checkpoint=0, follows=False),
    report=report(waiting={"d.late": "a file is missing"}),
)


def test_what_stands_still_comes_first() -> None:
    """By itself the list begins with lost and halted tables, then those that wait; dropped tables are left out."""
    assert names(listed(FEED, ViewerQuery())) == ["poor", "broken", "late", "Fast", "new", "slow", "left"]


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("halted", ["poor", "broken"]),
        ("waiting", ["late"]),
        ("running", ["Fast", "new", "slow"]),
        ("dropped", ["gone"]),
    ],
)
def test_states(state: str, found: list[str]) -> None:
    """A state holds the tables that are counted in it; a lost table counts as halted."""
    listing = listed(FEED, ViewerQuery(state=state))
    assert (names(listing), listing.found) == (found, len(found))
    assert listing.counts == {"halted": 2, "waiting": 1, "running": 3, "excluded": 1, "dropped": 1}


@pytest.mark.parametrize("sort", ["state", "table", "checkpoint", "lag"])
def test_tables_about_which_an_operator_decided(sort: str) -> None:
    """Paused tables stand behind the halted ones, skipped ones before those that the filter leaves out; each is a state to filter by."""
    since = "by ada on db1 since 2026-11-23 10:00:00 UTC"
    found = rows(
        table("left", "excluded"),
        table("passed", "excluded", error=f"skipped {since}"),
        table("broken", "halted", error="x"),
        table("held", "halted", error=f"paused {since}"),
    )
    listing = listed(found, ViewerQuery.of({"sort": sort}))
    assert listing.counts == {"halted": 1, "paused": 1, "skipped": 1, "excluded": 1}
    if sort == "state":
        assert names(listing) == ["broken", "held", "passed", "left"]
    assert [names(listed(found, ViewerQuery.of({"state": state}))) for state in ("paused", "skipped")] == [
        ["held"],
        ["passed"],
    ]


def test_search() -> None:
    """A table is found by any part of its whole name, in any case."""
    assert names(listed(FEED, ViewerQuery(q="FA"))) == ["Fast"]
    assert len(names(listed(FEED, ViewerQuery(q="D.")))) == 7
    assert names(listed(FEED, ViewerQuery(q="fa", state="halted"))) == []


@pytest.mark.parametrize(
    ("sort", "desc", "found"),
    [
        ("table", False, ["Fast", "broken", "late", "left", "new", "poor", "slow"]),
        ("table", True, ["slow", "poor", "new", "left", "late", "broken", "Fast"]),
        ("lag", True, ["new", "poor", "broken", "slow", "Fast", "late", "left"]),
        ("rows", True, ["slow", "late", "Fast", "broken", "left", "new", "poor"]),
        ("rate", True, ["Fast", "slow", "broken", "late", "left", "new", "poor"]),
        ("checkpoint", False, ["new", "poor", "broken", "slow", "Fast", "late", "left"]),
    ],
)
def test_orders(sort: str, desc: bool, found: list[str]) -> None:  # noqa: FBT001 - a value of the table
    """Without a checkpoint a table is behind all others; equal ones stay in the order of their names."""
    assert names(listed(FEED, ViewerQuery.of({"sort": sort, "desc": str(int(desc))}))) == found


def test_pages() -> None:
    """Each table is on one page; beyond the last page is the last page; an empty list has one page."""
    many = rows(*(table(f"t{n:04}") for n in range(2 * PAGE + 1)))
    found = [listed(many, ViewerQuery(page=page)) for page in (1, 2, 3, 99)]
    assert [(each.page, each.pages, each.first, len(each.rows)) for each in found] == [
        (1, 3, 1, PAGE),
        (2, 3, PAGE + 1, PAGE),
        (3, 3, 2 * PAGE + 1, 1),
        (3, 3, 2 * PAGE + 1, 1),
    ]
    assert [name for each in found[:3] for name in names(each)] == [f"t{n:04}" for n in range(2 * PAGE + 1)]
    empty = listed((), ViewerQuery())
    assert (empty.page, empty.pages, empty.first, empty.found) == (1, 1, 0, 0)


def test_query_from_an_address() -> None:
    """What an address holds comes back as the same address; what means nothing is as if it was not given."""
    given = {"state": "halted", "q": "ä&b=c", "sort": "lag", "desc": "1", "page": "3", "hours": "24", "reload": "1"}
    assert ViewerQuery.of(given).parameters() == given
    for nonsense in ("x", "-1", "0", "9" * 5000, "²", "1e3", "<b>"):
        found = ViewerQuery.of(dict.fromkeys(("state", "sort", "desc", "page", "hours", "reload"), nonsense))
        assert found == ViewerQuery(page=1)
    assert ViewerQuery().link(q="a b") == "?q=a+b"
    assert ViewerQuery(page=7, q="x").link(sort="lag") == "?q=x&sort=lag"


def test_addresses_of_tables() -> None:
    """Two tables whose names look alike have two addresses, and each leads to its table."""
    one, two = TableName(schema="a.b", table="c"), TableName(schema="a", table="b.c")
    assert table_path(one) != table_path(two)
    alike = rows(*(Table(name=name, state="running", checkpoint=1) for name in (one, two)))
    shown = {row.shown: row.name for row in alike}
    assert [shown[unquote(table_path(name).removeprefix("tables/"))] for name in (one, two)] == [one, two]
    assert table_path(TableName(schema="d", table="x/y?#%")) == "tables/d.x%2Fy%3F%23%25"
