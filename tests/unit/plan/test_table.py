"""One table: which rows come next, what is deferred, what is missing."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from storage_consumer.model import CommitRange, TableDefinition
from storage_consumer.plan.finished_files import FileSequences, Finished
from storage_consumer.plan.table import TableConsumer
from storage_consumer.plan.table_state import TableStanding, TableState
from tests.unit.building import CREATE, DROP, RENAME, data_file, definition, named

SQL = "ALTER TABLE `t` COMMENT 'x'"


def define(table: TableConsumer, definition: TableDefinition) -> None:
    """A schema file is there."""
    table.files.define((definition.version, "s/t"), definition)


@pytest.fixture
def table() -> TableConsumer:
    """s/t, which a statement created at 5."""
    made = TableConsumer(named("s/t"), 5, FileSequences())
    define(made, definition("s/t", 5, "CREATE TABLE `t` (`id` INT)", CREATE))
    return made


def files_at(table: TableConsumer, target: int) -> list[tuple[int, int]]:
    """(version, number) of the files that are read for rows up to `target`."""
    step = table.row_step(target)
    return [(file.version, file.number) for file in step.files] if step else []


def read(table: TableConsumer, target: int, *rows: int) -> None:
    """Read file 1 of version 5, which has these rows, in a commit range up to `target`."""
    table.advance(target)
    table.finish(data_file("s/t", 5, 1), max_ts=max(rows), next_ts=min((ts for ts in rows if ts > target), default=0))


def test_deferred_rows(table: TableConsumer) -> None:
    """A file with rows at 10, 20 and 30 is read when the checkpoint covers another of them, with no new file needed."""
    table.files.offer(data_file("s/t", 5, 1))
    for checkpoint, readable in ((9, True), (15, True), (19, False), (25, True), (29, False), (30, True)):
        assert bool(files_at(table, checkpoint)) is readable, checkpoint
        if readable:
            step = table.row_step(checkpoint)
            assert step is not None
            assert step.commit_range == CommitRange(low=table.checkpoint, high=checkpoint)
            read(table, checkpoint, 10, 20, 30)
    assert table.files.pending == 0


def test_nothing_to_do_at_the_checkpoint(table: TableConsumer) -> None:
    """A commit range never ends where it begins, nor before."""
    table.files.offer(data_file("s/t", 5, 1))
    assert table.row_step(5) is None
    assert table.row_step(4) is None
    table.advance(9)
    table.advance(7)
    assert table.checkpoint == 9


@pytest.mark.parametrize(("target", "found"), [(19, [5]), (20, [5]), (21, [5, 20])])
def test_directories(table: TableConsumer, target: int, found: list[int]) -> None:
    """A statement's directory is read only for rows after its version, older directories always."""
    define(table, definition("s/t", 20, SQL))
    for version in (20, 5):
        table.files.offer(data_file("s/t", version, 1))
    assert [version for version, _ in files_at(table, target)] == found


def test_structure_only_directory(table: TableConsumer) -> None:
    """A directory without a statement may hold earlier rows."""
    define(table, definition("s/t", 20))
    table.files.offer(data_file("s/t", 20, 1))
    assert files_at(table, 10) == [(20, 1)]


def test_order_of_versions(table: TableConsumer) -> None:
    """Files come by version as a number, then by their order in it."""
    for version in (100, 20):
        define(table, definition("s/t", version, SQL))
        for number in (10, 2):
            table.files.offer(data_file("s/t", version, number))
    assert files_at(table, 200) == [(20, 2), (20, 10), (100, 2), (100, 10)]


def test_structure_in_force(table: TableConsumer) -> None:
    """The structure is the newest one at or before the table's checkpoint, and the first of the commit range where none is."""
    define(table, definition("s/t", 20, SQL))
    table.files.offer(data_file("s/t", 5, 1))
    for checkpoint, version in ((5, 5), (19, 5), (20, 20), (25, 20)):
        table.advance(checkpoint)
        step = table.row_step(50)
        assert step is not None
        assert step.current.version == version
    early = TableConsumer(named("s/t"), 0, FileSequences())
    define(early, definition("s/t", 20))
    early.files.offer(data_file("s/t", 20, 1))
    first = early.row_step(50)
    assert first is not None
    assert first.current.version == 20


def test_structure_without_a_statement(table: TableConsumer) -> None:
    """The target needs a table made from a structure only where none is known, or where the last was dropped."""
    assert not table.timeline.needs_table_before(definition("s/t", 9))
    define(table, definition("s/t", 20, "DROP TABLE `t`", DROP))
    assert table.timeline.needs_table_before(definition("s/t", 30))
    assert not table.timeline.needs_table_before(definition("s/t", 15))
    assert TableConsumer(named("s/u"), 0, FileSequences()).timeline.needs_table_before(definition("s/u", 1))


def test_stays_after(table: TableConsumer) -> None:
    """It was there all the time if what follows does not make it; of one version the statement tells, not a bare structure."""
    assert not table.timeline.stays_after(5), "nothing follows"
    table.files.define((9, "S/t"), definition("S/t", 9))
    assert table.timeline.stays_after(5)
    define(table, definition("s/t", 9, "RENAME TABLE `s`.`x` TO `s`.`t`", RENAME))
    assert not table.timeline.stays_after(5)
    define(table, definition("s/t", 7, "ALTER TABLE `t` ADD COLUMN `c` INT", 5))
    assert table.timeline.stays_after(5)


def test_stays_after_a_statement_elsewhere(table: TableConsumer) -> None:
    """A statement that makes it tells so from the directory of another table too."""
    table.timeline.add(definition("s/t", 7, "RENAME TABLE `s`.`x` TO `s`.`t`", RENAME))
    define(table, definition("s/t", 9, SQL, 5))
    assert not table.timeline.stays_after(5)


@pytest.mark.parametrize("attribute", ["name", "checkpoint", "status"])
def test_only_the_table_changes_its_state(table: TableConsumer, attribute: str) -> None:
    """Nobody assigns to a table from outside; mypy refuses it too."""
    with pytest.raises(AttributeError):
        setattr(table, attribute, getattr(table, attribute))
    with pytest.raises(FrozenInstanceError):
        table.status.state = TableState.HALTED  # type: ignore[misc] # that is the point


def test_wait_for_a_missing_file(table: TableConsumer) -> None:
    """A gap stops the table at once, and for good only after the time to wait has passed; the late file ends the wait."""
    table.files.offer(data_file("s/t", 5, 2))
    assert [table.look_for_gaps(50, now, 60) for now in (100.0, 159.9)] == ["", ""]
    assert (table.status.state, table.status.blocked) == (TableState.WAITING, True)
    assert "file number 1 in s/t/5" in table.status.error
    assert table.look_for_gaps(50, 160.0, 60) == "file number 1 in s/t/5"
    table.files.offer(data_file("s/t", 5, 1))
    assert table.look_for_gaps(50, 161.0, 60) == ""
    assert (table.status.state, table.status.error) == (TableState.RUNNING, "")


def test_wait_begins_anew(table: TableConsumer) -> None:
    """A second gap is waited for as long as the first."""
    table.files.offer(data_file("s/t", 5, 2))
    table.look_for_gaps(50, 0.0, 60)
    table.files.offer(data_file("s/t", 5, 1))
    table.look_for_gaps(50, 50.0, 60)
    table.files.offer(data_file("s/t", 5, 4))
    assert [table.look_for_gaps(50, now, 60) for now in (70.0, 129.0)] == ["", ""]


@pytest.mark.parametrize(("storage", "waits"), [(29, False), (30, True)])
def test_wait_for_a_schema_file(table: TableConsumer, storage: int, waits: bool) -> None:  # noqa: FBT001 - a column of the table
    """A directory without its schema file stops the table once the storage checkpoint covers its version."""
    table.files.offer(data_file("s/t", 30, 1))
    table.look_for_gaps(storage, 0.0, 60)
    assert (table.status.state == TableState.WAITING) is waits
    assert files_at(table, storage) == []


def test_what_a_halted_table_waits_for_does_not_set_it_going(table: TableConsumer) -> None:
    """A statement that waits for a lock leaves a halted table halted, with its error; so does the next round."""
    table.halt("rows are missing", "row")
    assert table.wait(("a lock",), 0) == table.wait(("a lock",), 1_000) == 0
    assert (table.status.state, table.status.error) == (TableState.HALTED, "rows are missing")


def test_waits_for_the_same(table: TableConsumer) -> None:
    """The time that a table stands still counts from when it saw the same thing first, and anew for another."""
    assert [table.wait(("torn", tag), now) for tag, now in (("1", 10), ("1", 40), ("2", 50), ("2", 55))] == [
        0,
        30,
        0,
        5,
    ]
    assert (table.status.state, table.status.error) == (TableState.WAITING, "torn")


Place = tuple[int, int | None, str, int]
"""Version, partition, date and number of a file."""


@pytest.mark.parametrize(
    ("applied", "late", "out_of_turn"),
    [
        ((5, None, "2026-11-22", 1), (5, None, "2026-11-21", 2), True),
        ((5, None, "2026-11-21", 1), (5, None, "2026-11-22", 1), False),
        ((5, None, "2026-11-21", 2), (5, None, "2026-11-21", 1), True),
        ((5, None, "2026-11-21", 1), (5, None, "2026-11-21", 2), False),
        ((5, 7, "2026-11-22", 1), (5, 8, "2026-11-21", 2), False),
        ((5, 7, "2026-11-22", 1), (5, 7, "2026-11-21", 2), True),
        ((9, None, "2026-11-21", 1), (5, None, "2026-11-21", 2), True),
        ((9, 7, "2026-11-21", 1), (5, None, "2026-11-21", 2), True),
        ((9, 7, "2026-11-21", 1), (5, 8, "2026-11-21", 2), False),
        ((5, None, "2026-11-22", 1), (9, None, "2026-11-21", 1), False),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_out_of_turn(applied: Place, late: Place, *, out_of_turn: bool, restarted: bool) -> None:
    """A file is out of turn where one of its partition was applied that has a higher version, date or number."""
    first, second = (
        data_file("s/t", version, number, partition=partition, date=date)
        for version, partition, date, number in (applied, late)
    )
    table = TableConsumer(
        named("s/t"), 0, FileSequences({first.sequence: Finished(upto=first.number)} if restarted else {})
    )
    for version in (5, 9):
        define(table, definition("s/t", version))
    table.files.offer(replace(first, finished=restarted))
    if not restarted:
        step = table.row_step(20)
        assert step is not None
        assert step.out_of_turn == ""
        table.advance(20)
        table.finish(first, max_ts=0, next_ts=0)
    table.files.offer(second)
    step = table.row_step(30)
    assert step is not None
    assert step.out_of_turn == (second.stored.path if out_of_turn else "")


@pytest.mark.parametrize(
    ("query", "partitions", "crossing"),
    [
        ("CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) GLOBAL) PARTITION BY HASH (`p`)", (7, 8), True),
        ("CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) /*T![global_index] GLOBAL */)", (7, 8), True),
        ("CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) GLOBAL) PARTITION BY HASH (`p`)", (7, 7), False),
        ("CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) GLOBAL) PARTITION BY HASH (`p`)", (None, None), False),
        ("CREATE TABLE `t` (`global` INT COMMENT 'GLOBAL') /* GLOBAL */", (7, 8), False),
    ],
)
def test_rows_that_may_move_between_partitions(query: str, partitions: tuple[int, ...], *, crossing: bool) -> None:
    """A statement with a GLOBAL index is told where the table has several partition directories."""
    table = TableConsumer(named("s/t"), 5, FileSequences())
    define(table, definition("s/t", 5, query, CREATE))
    for number, partition in enumerate(partitions, 1):
        table.files.offer(data_file("s/t", 5, number, partition=partition))
    step = table.row_step(9)
    assert step is not None
    assert bool(step.crossing) is crossing


@pytest.mark.parametrize(("has_commit_ts", "read"), [(True, [(5, 1), (20, 1)]), (False, [(5, 1)])])
def test_structures_beyond_the_window(has_commit_ts: bool, read: list[tuple[int, int]]) -> None:  # noqa: FBT001 - a column of the table
    """Where rows do not say when they committed, those below a later structure wait for it to be reached."""
    table = TableConsumer(named("s/t"), 5, FileSequences(), tells_time=has_commit_ts)
    for version in (5, 20):
        define(table, definition("s/t", version))
        table.files.offer(data_file("s/t", version, 1))
    assert files_at(table, 10) == read


def test_a_name_that_went_on_lacks_nothing() -> None:
    """A table that the filter left out once, whose name went to another table with a copy, is stored as dropped: no restart halts it."""
    was_left_out = TableStanding(state=TableState.HALTED, error="it lacks its past", named=True, lacks_past=True)
    table = TableConsumer(named("s/t"), 5, FileSequences(), status=was_left_out)
    define(table, definition("s/t", 5, "CREATE TABLE `t` (`id` INT)", CREATE))
    assert table.status.stored == TableState.EXCLUDED
    table.hand_on(7)
    assert (table.status.stored, table.status.error) == (TableState.DROPPED, "")
