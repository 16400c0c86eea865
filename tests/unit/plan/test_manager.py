"""All tables together: waves, barriers, what a restart knows, and the checkpoint of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from storage_consumer.driver.ddl_prepare import was_seen
from storage_consumer.model import DataFile, DdlId, TableDefinition, TableName
from storage_consumer.plan.copies import Copies
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep, Wave
from storage_consumer.plan.table import Checkpoints, checkpoints
from tests.unit.building import (
    ALTER,
    CREATE,
    CREATE_DATABASE,
    DROP,
    DROP_DATABASE,
    RENAME,
    changed,
    data_file,
    definition,
    key,
    place,
)


def create(table_dir: str, version: int) -> TableDefinition:
    """CREATE TABLE."""
    return definition(table_dir, version, f"CREATE TABLE `{table_dir.partition('/')[2]}` (`id` INT)", CREATE)


def alter(table_dir: str, version: int) -> TableDefinition:
    """A statement that touches only its own table."""
    return definition(table_dir, version, f"ALTER TABLE `{table_dir.partition('/')[2]}` COMMENT 'x'", ALTER)


def rename(old: str, new: str, version: int) -> TableDefinition:
    """RENAME TABLE within s, in the directory of the new name."""
    return definition(f"s/{new}", version, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`", RENAME)


class Driver:
    """A manager, and what a round does with it."""

    def __init__(self, restart: Restart | None = None) -> None:
        """With what an earlier run left."""
        self.manager = ConsumerManager(restart or Restart(), gap_timeout=60)
        self.log: list[str] = []
        self.ran: list[DdlStep] = []

    def show(self, definitions: Iterable[TableDefinition] = (), files: Iterable[DataFile] = ()) -> None:
        """New files are listed."""
        made = list(definitions)
        dirs = {d.path: d.path.partition("/meta/")[0] for d in made}
        self.manager.dispatch(made, dirs, list(files))

    def wave(self, storage: int, *, is_stable: bool = False) -> Wave:
        """The next wave."""
        return self.manager.next_wave(storage, is_stable=is_stable)

    def go(self, storage: int, *, is_stable: bool = False, max_ts: int = 0, next_ts: int = 0) -> list[str]:
        """All waves up to a storage checkpoint; what was done, in order. Every file ends at `max_ts`."""
        self.log = []
        while wave := self.wave(storage, is_stable=is_stable):
            for step in wave.rows:
                self.log.append(f"rows {place(step.table_key)} ({step.commit_range.low}, {step.commit_range.high}]")
                self.manager.rows_applied(step)
                for file in step.files:
                    self.manager.tables[step.table_key].finish(file, max_ts=max_ts, next_ts=next_ts)
            for ddl in (ddl for group in wave.ddls for ddl in group):
                self.log.append(f"{'ensure' if ddl.ensure else 'ddl'} {ddl.table_dir}@{ddl.version}")
                self.ran.append(ddl)
                self.manager.ddl_done(ddl)
        return self.log

    def reached(self, storage_checkpoint: int) -> Checkpoints:
        """How far the tables are as a whole."""
        return checkpoints(self.manager.tables.values(), storage_checkpoint)

    def checkpoints(self) -> dict[str, int]:
        """Where each table stands."""
        return {place(key): table.checkpoint for key, table in self.manager.tables.items()}


@pytest.fixture
def driver() -> Driver:
    """s/a and s/b exist since 5; the storage checkpoint was 9."""
    made = Driver()
    made.show([create("s/a", 5), create("s/b", 5)])
    assert made.go(9) == ["ddl s/a@5", "ddl s/b@5"]
    return made


def test_one_job_for_all_tables(driver: Driver) -> None:
    """The rows of all tables that can run are one wave, each up to its own next statement."""
    driver.show([alter("s/b", 20)], [data_file("s/a", 5, 1), data_file("s/b", 5, 1)])
    wave = driver.wave(30)
    assert [(place(s.table_key), s.commit_range.low, s.commit_range.high) for s in wave.rows] == [
        ("s/a", 9, 30),
        ("s/b", 9, 20),
    ]
    assert wave.ddls == ()


def test_statement_in_its_place(driver: Driver) -> None:
    """Rows up to and at V, the statement at V, rows after it."""
    driver.show([alter("s/a", 20)], [data_file("s/a", 5, 1), data_file("s/a", 20, 1)])
    assert driver.go(30) == ["rows s/a (9, 20]", "ddl s/a@20", "rows s/a (20, 30]"]


def test_a_table_that_turns_up_by_a_data_file_alone(driver: Driver) -> None:
    """A DROP DATABASE that is on the line already waits for a table of which a data file came before its schema file."""
    driver.show([definition("s", 20, "DROP DATABASE `s`", 2)])
    driver.go(12)
    driver.show(files=[data_file("s/z", 15, 1)])
    driver.manager.look_for_gaps(30, 0.0)
    assert driver.go(30) == []
    driver.show([create("s/z", 15)])
    driver.manager.look_for_gaps(30, 1.0)
    assert driver.go(30, max_ts=20) == ["ddl s/z@15", "rows s/z (15, 20]", "ddl s@20"]


def test_rename_moves_both_names(driver: Driver) -> None:
    """After a rename the old name is gone and the new one is there, and a table of the old name can come again."""
    driver.show([rename("a", "c", 20)])
    driver.go(30)
    dropped = {place(t) for t, table in driver.manager.tables.items() if table.status.dropped}
    assert dropped == {"s/a"}
    driver.show([create("s/a", 40)])
    driver.go(50)
    assert not any(table.status.dropped for table in driver.manager.tables.values())


def test_dropped_table(driver: Driver) -> None:
    """Late files of a dropped table are read as such: they may only hold repeats."""
    driver.show([definition("s/a", 20, "DROP TABLE `s`.`a`", DROP)])
    driver.go(30)
    driver.show(files=[data_file("s/a", 5, 1)])
    wave = driver.wave(40)
    assert [(place(step.table_key), step.dropped) for step in wave.rows] == [("s/a", True)]
    assert driver.manager.tables[key("s/a")].status.shown == "dropped"


@pytest.mark.parametrize(
    ("storage", "is_stable", "runs"), [(19, True, 0), (20, False, 0), (20, True, 1), (21, False, 1)]
)
def test_statement_at_the_storage_checkpoint(driver: Driver, storage: int, is_stable: bool, runs: int) -> None:  # noqa: FBT001 - a column of the table
    """A statement at exactly the storage checkpoint waits for it to move or to settle; rows up to it do not."""
    driver.show([alter("s/a", 20)], [data_file("s/a", 5, 1)])
    log = driver.go(storage, is_stable=is_stable)
    assert log == [f"rows s/a (9, {min(20, storage)}]", *["ddl s/a@20"] * runs]


def test_idle_tables_keep_up(driver: Driver) -> None:
    """A table without files reaches the storage checkpoint with the others."""
    driver.show(files=[data_file("s/a", 5, 1)])
    driver.go(30)
    assert driver.checkpoints() == {"s/a": 30, "s/b": 30}
    assert driver.reached(30).running == 30


@pytest.mark.parametrize(
    "end",
    [
        definition("s/t", 20, "DROP TABLE `s`.`t`", DROP, checksum=2),
        definition("s", 20, "DROP DATABASE `s`", DROP_DATABASE),
        rename("t", "u", 20),
    ],
)
def test_structure_only_after_the_end_of_a_table(driver: Driver, end: TableDefinition) -> None:
    """A structure without a statement makes sure of its table anew after what took the table away, once."""
    driver.show([definition("s/t", 10), end, definition("s/t", 30, checksum=3), definition("s/t", 40, checksum=4)])
    assert driver.go(99) == ["ensure s/t@10", f"ddl {end.path.partition('/meta/')[0]}@20", "ensure s/t@30"]


def test_structure_only(driver: Driver) -> None:
    """A structure without a statement makes sure of its table once, and is no barrier where the table is known (D12)."""
    driver.show([definition("s/c", 20), definition("s/a", 20), definition("s/c", 25)])
    assert driver.go(30) == ["ensure s/c@20"]


def test_late_and_repeated_listings(driver: Driver) -> None:
    """A schema file that is listed again changes nothing; a changed data file is read again."""
    driver.show([create("s/a", 5)], [data_file("s/a", 5, 1)])
    assert driver.go(30) == ["rows s/a (9, 30]"]
    driver.show([create("s/a", 5)], [changed(data_file("s/a", 5, 1), "2")])
    assert driver.go(40) == ["rows s/a (30, 40]"]


def test_vanished_files(driver: Driver) -> None:
    """A table waits for a file that is gone before it was read; one that was finished may go."""
    one, two = data_file("s/a", 5, 1), data_file("s/a", 5, 2)
    driver.show(files=[one])
    driver.go(20)
    driver.show(files=[two])
    driver.manager.catalog.vanished([one, two, data_file("q/x", 5, 1)])
    assert driver.manager.look_for_gaps(30, 0.0) == {}
    assert "file number 2" in driver.manager.tables[key("s/a")].status.error
    ((table, error),) = driver.manager.look_for_gaps(30, 60.0).items()
    assert table == key("s/a")
    assert error.startswith("file number 2 in s/a/5 is missing and did not arrive within 60 s")


def test_waiting_ends_with_the_round(driver: Driver) -> None:
    """A table that waits stands still for the round and goes on in the next one; a halted one does not."""
    assert not driver.manager.wait(key("s/a"), ("torn",), 0)
    driver.manager.tables[key("s/b")].halt("broken", "row")
    driver.go(30)
    assert driver.checkpoints() == {"s/a": 9, "s/b": 9}
    assert driver.reached(30).running == 9
    driver.manager.new_round()
    driver.go(30)
    assert driver.checkpoints() == {"s/a": 30, "s/b": 9}


def test_no_table() -> None:
    """An empty bucket is as far as its storage checkpoint, and nothing is to do."""
    driver = Driver()
    assert not driver.wave(30)
    assert driver.reached(30).running == 30


# after a restart


def test_restart() -> None:
    """Tables follow the checkpoint of the whole unless they are ahead of it, or stood still behind it."""
    created = frozenset(DdlId(f"s/{t}", 5, 1) for t in "abcd")
    tables = {key("s/a"): 70, key("s/b"): 20, key("s/c"): 20}
    restart = Restart(checkpoint=50, tables=tables, behind=frozenset([key("s/b")]), journalled=created)
    driver = Driver(restart)
    driver.show([create(f"s/{t}", 5) for t in "abcd"])
    assert driver.checkpoints() == {"s/a": 70, "s/b": 20, "s/c": 50, "s/d": 50}
    assert driver.reached(80).running == 20
    assert driver.go(80) == []


@pytest.mark.parametrize(
    ("version", "journalled", "runs"), [(49, False, 0), (50, True, 0), (50, False, 1), (51, False, 1)]
)
def test_statements_over_a_restart(version: int, journalled: bool, runs: int) -> None:  # noqa: FBT001 - a column of the table
    """A statement above the checkpoint did not run, at the checkpoint the journal knows; one below it that it lacks halts."""
    statement = alter("s/a", version)
    done = frozenset([DdlId("s/a", 5, 1)] + ([DdlId("s/a", version, 1)] if journalled else []))
    driver = Driver(Restart(checkpoint=50, journalled=done))
    driver.show([create("s/a", 5), statement])
    assert driver.go(80) == [f"ddl s/a@{version}"] * runs
    assert ("arrived after later rows" in driver.manager.tables[key("s/a")].status.error) == (version < 50)


def test_finished_files_are_not_read_again(driver: Driver) -> None:
    """Files that an earlier run finished are counted when they are first listed, and not read."""
    files = [data_file("s/a", 5, number) for number in (1, 2, 3)]
    driver.show(files=files)
    driver.go(30)
    created = frozenset([DdlId("s/a", 5, 1)])
    again = Driver(Restart(checkpoint=30, done=driver.manager.sequences.to_store(), journalled=created))
    again.show([create("s/a", 5)], [*(replace(file, finished=True) for file in files), data_file("s/a", 5, 4)])
    assert again.manager.finished_files == 3
    assert (again.manager.pending_files, again.manager.pending_bytes) == (1, 10)


def test_new_table_after_the_checkpoint(driver: Driver) -> None:
    """A table that is first seen begins at the stored checkpoint, and a statement at exactly that one still runs."""
    driver.manager.catalog.stored_checkpoint = 9
    driver.show([create("s/n", 9)], [data_file("s/n", 9, 1)])
    assert driver.go(30, max_ts=30) == ["ddl s/n@9", "rows s/n (9, 30]"]


def test_databases_of_the_bucket(driver: Driver) -> None:
    """It is known which databases the bucket makes, and whether a table has an earlier structure."""
    driver.show(
        [definition("New", 20, "CREATE DATABASE `New`", CREATE_DATABASE), create("new/t", 21), alter("new/t", 22)]
    )
    driver.go(30)
    made = {step.table_dir: driver.manager.creates_database(step) for step in driver.ran}
    assert (made["new/t"], made["s/a"]) == (True, False)
    earlier = {(step.table_dir, step.version): was_seen(step, driver.manager) for step in driver.ran}
    del earlier["s/a", 5], earlier["s/b", 5]
    assert earlier == {("New", 20): False, ("new/t", 21): False, ("new/t", 22): True}


def test_database_that_was_never_seen(driver: Driver) -> None:
    """A DROP DATABASE finds something where a table of it was there before, whether or not the bucket made the database."""
    driver.show([definition(name, 20, f"DROP DATABASE `{name}`", DROP_DATABASE) for name in ("S", "gone")])
    driver.go(30)
    dropped = {step.table_dir: was_seen(step, driver.manager) for step in driver.ran if step.version == 20}
    assert dropped == {"S": True, "gone": False}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_copy_from_before_a_finished_file_was_written_anew(*, restarted: bool) -> None:
    """It need not hold the file's new rows, so they stay needed: also where the very next poll finds it, and after a restart."""
    driver, file, table = Driver(), data_file("s/t", 10, 1), key("s/t")
    driver.manager.new_round(now=100)
    driver.show([create("s/t", 10)], [file])
    assert [each.key for each in driver.manager.note_listed(0)] == [table]
    driver.go(50, max_ts=20)
    done, copies = driver.manager.sequences.to_store(), driver.manager.tables[table].copies.to_store()
    assert copies is not None
    if restarted:
        restart = Restart(
            checkpoint=50,
            done=done,
            copies={table: copies},
            tables={table: 50},
            journalled=frozenset(each.identity for each in driver.ran),
        )
        driver = Driver(restart)
    driver.manager.new_round(now=200)
    driver.show([create("s/t", 10)] if restarted else [], [changed(file, "2")])
    assert [each.key for each in driver.manager.note_listed(0)] == [table]
    driver.manager.sequences.rewound()
    known = driver.manager.tables[table].copies.known
    assert (known.listed_at, known.renewed(150).listed) == (200, {file.sequence: 1})
    driver.manager.new_round(now=300)
    assert driver.manager.note_listed(0) == []


def test_what_was_read_makes_no_table() -> None:
    """A table that no file shows is created for what was listed and is missing, not for what was read."""
    file, table = data_file("s/t", 10, 1), key("s/t")
    copies = {table: Copies(listed={file.sequence: 1}, listed_at=100)}
    targets = {table: (TableName(schema="s", table="t"),) * 2}
    for done, there in (({}, True), ({file.sequence: Finished(upto=1)}, False)):
        driver = Driver(Restart(checkpoint=50, done=done, copies=copies, targets=targets))
        driver.show()
        assert (table in driver.manager.tables) is there
