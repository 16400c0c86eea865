"""The two halves of a task: files to blocks, blocks to the target."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storage_consumer.config.settings import Protocol
from storage_consumer.decode import canal_files as canal_json
from storage_consumer.decode import csv_files as scan
from storage_consumer.errors import TargetUnavailable
from storage_consumer.rows import row_order as buffer
from storage_consumer.rows.halves import write_bucket
from storage_consumer.rows.row_order import CHANGES, NOTICE, REPORT
from storage_consumer.rows.spec import FileReport, Fold, KeyPart, Mode, VersionPlan, WriteReport
from tests.harness.twins.storage import MemoryWriter
from tests.unit.decode.encoders import OPTIONS, Row
from tests.unit.halves import LAYOUT, NAME, WIRE, Files, errors, row, table

OLD = replace(OPTIONS, output_old_value=True)


@pytest.mark.parametrize("mode", [Mode.KEYED, Mode.ORDERED])
def test_last_state(mode: Mode) -> None:
    """The last change of a key by commit ts counts, in whichever file it is (C7)."""
    files = Files(table(mode))
    files.add(row("U", 30, "a", "3"), row("D", 30, "b"))
    files.add(row("I", 10, "a", "1"), row("I", 10, "b", "1"), row("I", 10, "c", "1"))
    files.add(row("U", 20, "a", "2"))
    assert errors(files.apply()) == []
    assert files.rows() == {("a", "3"): 1, ("c", "1"): 1}


@pytest.mark.parametrize("mode", Mode)
def test_deletes_before_upserts_across_partitions(mode: Mode) -> None:
    """A row that moves between partitions in one transaction is deleted before it is inserted, whatever the files' order (C14)."""
    for first, second in (("D", "I"), ("I", "D")):
        files = Files(table(mode))
        files.add(row("I", 5, "a", "old"))
        for operation in (first, second):
            files.add(row(operation, 10, "a", "old" if operation == "D" else "new"), partition=ord(operation))
        assert errors(files.apply()) == []
        assert files.rows() == {("a", "new"): 1}


def test_key_changing_update() -> None:
    """An update that changes the key takes the old row away where the file tells it (C13)."""
    files = Files(table(), protocol="canal-json")
    files.add(row("I", 5, "a"), row("U", 10, "b", "y", old=("a", "x")))
    assert errors(files.apply()) == []
    assert files.rows() == {("b", "y"): 1}


def test_swapped_keys() -> None:
    """Two keys that one transaction swaps by plain updates both stay: deletes of old halves go before all upserts (C13, C14)."""
    files = Files(table(), protocol="canal-json")
    files.add(row("I", 5, "a", "1"), row("I", 5, "b", "2"))
    files.add(row("U", 10, "b", "1", old=("a", "1")), row("U", 10, "a", "2", old=("b", "2")))
    assert errors(files.apply()) == []
    assert files.rows() == {("b", "1"): 1, ("a", "2"): 1}


def test_keys_equal_by_collation() -> None:
    """Keys that only the target finds equal are changed in sequence (C19)."""
    files = Files(table(Mode.ORDERED))
    files.writer = MemoryWriter({NAME: [("c0",)]}, same=str.casefold)
    files.add(row("I", 5, "a1"), row("D", 10, "a1"), row("I", 10, "A1", "y"), row("I", 10, "b1"))
    files.add(row("D", 20, "b1"), row("I", 20, "B1"), row("D", 30, "B1"))
    assert errors(files.apply()) == []
    assert files.rows() == {("A1", "y"): 1}


def test_keys_equal_by_collation_in_the_order_of_the_file() -> None:
    """Without commit ts such changes are made in the order of the file: a delete behind an insert takes the row away (C19)."""
    files = Files(replace(table(Mode.ORDERED), has_commit_ts=False))
    files.writer = MemoryWriter({NAME: [("c0",)]}, same=str.casefold)
    files.add(row("I", 5, "a1"), row("D", 5, "A1"), row("D", 5, "b1"), row("I", 5, "B1"))
    assert errors(files.apply()) == []
    assert files.rows() == {("B1", "x"): 1}


def test_spelling_of_a_key() -> None:
    """An update that only changes the case of a key, in a file that does not tell the old one, leaves the new spelling."""
    for old, new in (("a1", "A1"), ("A1", "a1")):
        files = Files(table(Mode.ORDERED))
        files.writer = MemoryWriter({NAME: [("c0",)]}, same=str.casefold)
        files.add(row("I", 5, old), row("U", 10, new, "y"))
        assert errors(files.apply()) == []
        assert files.rows() == {(new, "y"): 1}


def test_window() -> None:
    """Rows at the low border are repeats, rows at the high border are applied, later ones wait; each is counted."""
    files = Files(table(low=10, high=20))
    files.add(*(row("I", ts, str(ts)) for ts in (9, 10, 11, 20, 21, 25)))
    report = next(r for r in files.apply() if isinstance(r, FileReport))
    assert files.rows() == {("11", "x"): 1, ("20", "x"): 1}
    assert (report.rows, report.duplicates, report.applied, report.later) == (6, 2, 2, 2)
    assert (report.max_ts, report.next_ts) == (25, 21)


def test_repeats_are_recognized_by_the_applied_mark_only() -> None:
    """A commit ts that falls back below one seen before is no repeat: another partition may share the directory (C6, C7)."""
    files = Files(table(Mode.KEYLESS, low=10, high=50))
    files.add(row("I", 40, "late"), row("I", 20, "early"), row("I", 11, "first"))
    files.apply()
    assert {key for key, _ in files.rows()} == {"late", "early", "first"}


def test_keyless_events() -> None:
    """Of a keyless table every event counts, in the order of commit ts, equal rows too; a second delivery changes nothing (U8)."""
    files = Files(table(Mode.KEYLESS))
    first = [row("I", 5, "a"), row("I", 5, "a"), row("D", 7, "a"), row("I", 7, "b")]
    files.add(*first, row("D", 9, "b"))
    files.add(*first)
    assert errors(files.apply()) == []
    assert files.rows() == {("a", "x"): 1}
    assert files.writer.checkpoints == {"`shop`.`orders`": 9}
    assert errors(files.apply()) == []
    assert files.rows() == {("a", "x"): 1}


def test_keyless_transaction_in_two_files() -> None:
    """Equal rows of one keyless transaction count all, also where a file ends within it."""
    files = Files(table(Mode.KEYLESS))
    files.add(row("I", 5, "a"), row("I", 5, "b"))
    files.add(row("I", 5, "b"), row("I", 5, "c"), row("I", 6, "d"))
    assert errors(files.apply()) == []
    assert files.rows() == {("a", "x"): 1, ("b", "x"): 2, ("c", "x"): 1, ("d", "x"): 1}


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_keyless_transaction_goes_on_with_an_update(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that begins with an update's D row goes on with the transaction of the file before it like any other."""
    monkeypatch.setattr(scan, "AT_ONCE_BYTES", at_once)
    files = Files(table(Mode.KEYLESS), options=OLD)
    files.add(*(row("I", 4, "a") for _ in range(3)))
    files.add(row("U", 5, "b", old=("a", "x")), row("U", 5, "c", old=("a", "x")))
    files.add(row("U", 5, "b", old=("a", "x")), row("I", 5, "d"))
    assert errors(files.apply()) == []
    assert files.rows() == {("b", "x"): 2, ("c", "x"): 1, ("d", "x"): 1}


def test_updates_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The D row and the I row of an update are two rows of the file and one change."""
    monkeypatch.setattr(scan, "AT_ONCE_BYTES", 1)
    files = Files(table(), options=OLD)
    files.add(row("I", 4, "a"), row("U", 5, "b", old=("a", "x")), row("U", 6, "b", "y", old=("b", "x")))
    (report,) = [report for report in files.apply() if isinstance(report, FileReport)]
    assert (report.rows, report.applied) == (5, 3)
    assert files.rows() == {("b", "y"): 1}


def test_keyless_update() -> None:
    """An update of a keyless table is a delete of the row that the file tells and an insert."""
    files = Files(table(Mode.KEYLESS), protocol="canal-json")
    files.add(row("I", 5, "a"), row("U", 6, "b", old=("a", "x")))
    assert errors(files.apply()) == []
    assert files.rows() == {("b", "x"): 1}


def test_keyless_update_without_its_old_row() -> None:
    """Where the file does not tell the old row nothing is written, and the error names the file, the row and the option."""
    files = Files(table(Mode.KEYLESS))
    file = files.add(row("I", 5, "a"), row("U", 6, "a", "y"))
    (message,) = errors(files.apply())
    assert message.startswith(f"{file.stored.path}, row 2, commit ts 6")
    assert "output-old-value" in message
    assert files.rows() == {}


def test_keyless_delete_that_hits_nothing() -> None:
    """A delete that finds no row stops the table with the commit ts."""
    files = Files(table(Mode.KEYLESS))
    files.add(row("D", 7, "a"))
    (message,) = errors(files.apply())
    assert "commit ts 7" in message


def test_large_file_is_sent_on_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of one file is bounded by bytes, however few and wide its rows are (P2)."""
    monkeypatch.setattr(buffer, "FLUSH_BYTES", 40_000)
    files = Files(table(), partitions=1)
    files.add(*(row("I", 5, str(key), "x" * 10_000) for key in range(50)))

    sent = [item for place, item in files.read() if place[1] == CHANGES]

    assert len(sent) >= 10
    assert max(len(block) for block in sent) < 60_000


@pytest.mark.parametrize("mode", Mode)
def test_small_blocks(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often buffers are sent on and however small blocks are, the result is the same."""
    rng = random.Random(5)  # noqa: S311 - data, not a secret
    states: dict[str, str] = {}
    changes: list[Row] = []
    for ts in range(1, 100):
        key = str(rng.randrange(9))
        if key in states:
            changes.append(row("D", ts, key, states.pop(key)))
        else:
            states[key] = str(rng.randrange(3))
            changes.append(row("I", ts, key, states[key]))
    for block, flush in ((1, 1), (2, 7), (5000, 100_000)):
        monkeypatch.setattr(buffer, "BLOCK_ROWS", block)
        monkeypatch.setattr(buffer, "FLUSH_ROWS", flush)
        files = Files(table(mode))
        for start in range(0, len(changes), 13):
            files.add(*changes[start : start + 13])
        assert errors(files.apply()) == []
        assert files.rows() == dict.fromkeys(states.items(), 1)


@pytest.mark.parametrize(
    ("tail", "newest", "torn"),
    [('"I","orders"', True, True), ('"I","orders"', False, False), ('"I"\r\n"I"\r\n', True, False)],
)
def test_broken_row(tail: str, newest: bool, torn: bool) -> None:  # noqa: FBT001 - columns of the table
    """A row that does not parse stops the table before anything of it is written; only a torn end of the newest file may heal."""
    files = Files(table())
    files.add(row("I", 5, "a"), newest=newest, tail=tail)
    files.add(row("I", 6, "b"))
    broken = {r for r in files.apply() if isinstance(r, FileReport) and r.error}
    assert [report.torn for report in broken] == [torn]
    assert files.rows() == {}


def test_error_is_reported_to_every_bucket() -> None:
    """A table's error reaches all buckets before any change does."""
    files = Files(table(), partitions=4)
    files.add(row("I", 5, "a"), tail="rubbish\r\n")
    places = [place for place, _ in files.read()]
    assert {place[0] for place in places if place[1] == NOTICE} == {0, 1, 2, 3}
    assert NOTICE < CHANGES < REPORT


def test_error_of_a_task_that_is_repeated() -> None:
    """Spark reads a file again where what was read of it is lost; a bucket that then gets nothing says why, for the others may have ended."""
    files = Files(table(), partitions=2)
    vanishing = files.add(*(row("I", 5, f"key {number}") for number in range(20)))
    first = [item for item in files.read() if item[0][0] == 0]
    del files.contents[vanishing.stored.path]
    second = [item for item in files.read() if item[0][0] == 1]
    buckets = [sorted(items, key=lambda item: item[0]) for items in (first, second)]
    reports = [report for items in buckets for report in write_bucket(items, {0: files.work}, files.writer)]
    assert 0 < len(files.rows()) < 20
    (message,) = errors(reports)
    assert "vanished" in message


def test_other_tables_go_on() -> None:
    """One table's error leaves the others of the same bucket alone (O12)."""
    good, bad = table(index=1), table(index=0)
    files = Files(good, partitions=1)
    files.add(row("I", 5, "a"))
    failed = FileReport(table=0, path="a", error="bad")
    items = [*files.read(), ((0, NOTICE, 0, 0), failed), ((0, CHANGES, 0, 3), b"")]
    reports = list(write_bucket(iter(sorted(items, key=lambda i: i[0])), {0: bad, 1: good}, files.writer))
    assert [r.table for r in reports if isinstance(r, WriteReport)] == [1]
    assert files.rows() == {("a", "x"): 1}


def test_vanished_file() -> None:
    """A file that is gone when it is read stops its table and says that data was lost."""
    files = Files(table())
    del files.contents[files.add(row("I", 5, "a")).stored.path]
    (message,) = errors(files.apply())
    assert "vanished" in message


@pytest.mark.parametrize("at_once", [1, 1 << 20])
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_null_key(protocol: Protocol, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NULL in a key column is told with file, row and commit ts, also where many rows are read in one batch."""
    monkeypatch.setattr(scan, "AT_ONCE_BYTES", at_once)
    monkeypatch.setattr(canal_json, "AT_ONCE_BYTES", at_once)
    files = Files(table(), protocol=protocol)
    file = files.add(row("I", 3, "a"), row("I", 4, "b"), Row(operation="I", values=(None, "x"), ts=5), row("I", 6, "c"))
    (message,) = errors(files.apply())
    assert message == f"{file.stored.path}, row 3, commit ts 5: NULL in a key column"


@pytest.mark.parametrize("width", [1, 2], ids=["one key column", "two key columns"])
def test_rows_that_no_longer_fit(width: int) -> None:
    """A directory of an older structure may hold repeats, which are counted; a new row in it stops the table."""
    keys = tuple(KeyPart(column=column, fold=Fold.EXACT) for column in WIRE[:width])
    misfit = VersionPlan(layout=LAYOUT, low=20, written=(), key=(), misfit="the target's table lacks c9")
    work = replace(table(low=20), key=keys, versions={(1, "shop/orders"): misfit})
    files = Files(work)
    files.add(row("I", 10, "a"), row("I", 20, "b"))
    reports = files.apply()
    assert errors(reports) == []
    assert [r.duplicates for r in reports if isinstance(r, FileReport)] == [2]
    file = files.add(row("I", 21, "c"))
    (message,) = errors(files.apply())
    assert message == f"{file.stored.path}, row 1, commit ts 21: the target's table lacks c9"
    assert files.rows() == {}


def test_rows_that_can_only_be_repeats() -> None:
    """Rows of a directory that was dropped with its table are counted as repeats, whatever commit ts they have."""
    dropped = {(1, "shop/orders"): VersionPlan(layout=LAYOUT, low=0, written=(), key=(), is_all_duplicates=True)}
    (files := Files(replace(table(), versions=dropped))).add(row("I", 10, "a"), row("D", 20, "b"))
    told = [(r.duplicates, r.applied, r.error) for r in files.apply() if isinstance(r, FileReport)]
    assert (told, files.rows()) == ([(2, 0, "")], {})


def test_refused_row_is_reported() -> None:
    """What the target refuses is a report of that table; what makes writing impossible ends the task."""
    files = Files(table(Mode.KEYLESS))
    files.add(row("D", 7, "a"))

    class Unavailable(MemoryWriter):
        def write_events(self, *_: object) -> int:
            raise TargetUnavailable

    assert len(errors(files.apply())) == 1
    files.writer = Unavailable()
    with pytest.raises(TargetUnavailable):
        files.apply()
