"""Every border, from just below to just above."""

from __future__ import annotations

import pytest

from storage_consumer import tso

BORDER = 449_000_000_000_000_000


@pytest.mark.parametrize(("ts", "applied"), [(BORDER - 1, True), (BORDER, True), (BORDER + 1, False)])
def test_rows_at_a_checkpoint_are_applied(ts: int, applied: bool) -> None:  # noqa: FBT001 - a column of the table
    """Our checkpoint is inclusive, and so is the storage's for rows; neighbours are told apart at full precision."""
    assert tso.is_applied(ts, BORDER) is applied
    assert tso.is_stored(ts, BORDER) is applied


@pytest.mark.parametrize(
    ("version", "moving", "is_stable"),
    [(BORDER - 1, True, True), (BORDER, False, True), (BORDER + 1, False, False)],
)
def test_ddl_at_the_storage_checkpoint(version: int, moving: bool, is_stable: bool) -> None:  # noqa: FBT001 - columns of the table
    """A DDL at exactly the storage checkpoint waits until that has settled; one beyond it waits anyway."""
    assert tso.ddl_is_stored(version, BORDER, is_stable=False) is moving
    assert tso.ddl_is_stored(version, BORDER, is_stable=True) is is_stable


@pytest.mark.parametrize(
    ("version", "unknown", "known"), [(BORDER - 1, False, False), (BORDER, True, False), (BORDER + 1, True, True)]
)
def test_ddl_at_our_checkpoint(version: int, unknown: bool, known: bool) -> None:  # noqa: FBT001 - columns of the table
    """At exactly our checkpoint only the journal knows whether a DDL ran."""
    assert tso.ddl_is_pending(version, BORDER, journalled=False) is unknown
    assert tso.ddl_is_pending(version, BORDER, journalled=True) is known


@pytest.mark.parametrize(("high", "ddl"), [(BORDER - 1, False), (BORDER, False), (BORDER + 1, True)])
def test_directory_of_a_statement_holds_later_rows(high: int, ddl: bool) -> None:  # noqa: FBT001 - a column of the table
    """A statement's directory has new rows after its version only; a mere structure's directory has no such border."""
    assert tso.may_hold_rows(BORDER, high, is_ddl=True) is ddl
    assert tso.may_hold_rows(BORDER, high, is_ddl=False)


def test_row_floor() -> None:
    """Rows at or below a statement's version are repeats in its directory, whatever the commit range."""
    assert tso.row_floor(10, 20, is_ddl=True) == 20
    assert tso.row_floor(30, 20, is_ddl=True) == 30
    assert tso.row_floor(10, 20, is_ddl=False) == 10


def test_files_that_may_have_expired() -> None:
    """TiCDC deletes what is dated so many days before the storage checkpoint; where it deletes nothing nothing is gone."""
    then, week = 449_000_000 << 18 << 10, 7 * 24 * 3600 * 1000 << 18
    assert not tso.may_have_expired(then, then + week, 7)
    assert tso.may_have_expired(then, then + week + (1 << 18), 7)
    assert not tso.may_have_expired(then, then + 9 * week, 0)
    assert not tso.may_have_expired(0, then, 7), "nothing was applied yet"


def test_lowest() -> None:
    """The whole is as far as its last table, and with the storage where there is none."""
    assert tso.lowest(iter([3, 1, 2]), 9) == 1
    assert tso.lowest((), 9) == 9
    assert tso.lowest([30], 9) == 9
