"""Bulk statements: their text, types and values, and for how many rows they are worth it."""

from __future__ import annotations

import sys

import pytest

from storage_consumer.decode.kernels.row_lines import Lines
from storage_consumer.target.apply_rows import is_many
from storage_consumer.target.row_statements import bulk_statement, bulk_types, bulk_values
from tests.unit.target.test_statements import BIT, BLOB, ID, work


def test_statement() -> None:
    """One place for each column that is written, with its type; names are quoted."""
    assert bulk_statement(work(ID, BLOB), "REPLACE") == "REPLACE INTO `s```.`t` (`id`, `b`) VALUES (?, ?)"
    assert bulk_types(work(ID, BLOB, BIT)) == bytes((253, 0, 252, 0, 8, 128))


def test_values() -> None:
    """Texts and bytes with their lengths, numbers in eight bytes, NULL as nothing (P13); None for what is no value of its column."""
    columns = work(ID, BLOB, BIT)
    found = bulk_values(columns, Lines.of([b"-1\t00ff\t258", rb"\N" + b"\t\\N\t\\N"]))
    assert found is not None
    assert bytes(found) == b"\0\x02-1\0\x02\x00\xff\0\x02\x01\0\0\0\0\0\0\1\1\1"
    assert bulk_values(columns, Lines.of([b"1\t0\t1"])) is None


def test_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported the compiler yet does so for many rows only."""
    monkeypatch.setitem(sys.modules, "numba", sys)
    assert [rows for rows in (99, 100, 499, 500) if is_many(rows)] == [100, 499, 500]
    monkeypatch.delitem(sys.modules, "numba")
    assert [rows for rows in (99, 100, 499, 500) if is_many(rows)] == [500]
