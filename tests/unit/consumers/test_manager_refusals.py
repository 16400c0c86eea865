"""What the manager stops or tells, since going on would lose or mix up rows unseen."""

from __future__ import annotations

from storage_consumer.consumers.manager import Restart
from storage_consumer.consumers.table_version import Finished, TableVersionConsumer
from tests.unit.building import changed, data_file, definition
from tests.unit.consumers.test_manager import Driver, create


def known() -> Driver:
    """A manager that knows the table s.a, made at 5."""
    driver = Driver()
    driver.show([create("s/a", 5)])
    driver.go(9)
    return driver


def test_one_table_under_two_paths() -> None:
    """Two directories of one table, whose names differ in case, can't be put in order: both stop."""
    driver = known()
    driver.show([create("S/A", 5)], [data_file("s/a", 5, 1), data_file("S/A", 5, 1)])
    driver.go(30)
    assert all("stored under S/A and s/a" in driver.manager.tables[t].error for t in ("s/a", "S/A"))


def test_lost_file_over_a_restart() -> None:
    """A table that lost a file before it was read stands still after a restart too."""
    driver = Driver(Restart(lost=frozenset(["s/a"])))
    driver.show([create("s/a", 5), create("s/b", 5)], [data_file("s/a", 5, 1)])
    assert driver.go(30) == ["ddl s/b@5"]
    assert "vanished" in driver.manager.tables["s/a"].error


def test_statement_that_comes_after_a_table_went_on() -> None:
    """A statement that touches a table which was applied beyond it is told, not run."""
    driver = known()
    driver.go(30)
    late = definition("s/n", 20, "ALTER TABLE `n` EXCHANGE PARTITION `p` WITH TABLE `a`", 42)
    driver.show([late])
    (step,) = driver.manager._pending.values()
    assert driver.manager.beyond(step) == ["s.a"]


def test_rewound_streams_are_told_once() -> None:
    """A finished file whose content changed takes its stream back, which has to be stored before it is read."""
    driver = known()
    file = data_file("s/a", 5, 1)
    driver.show(files=[file])
    driver.go(30)
    assert driver.manager.rewound() == {}
    driver.show(files=[changed(file, "other")])
    assert driver.manager.rewound() == {file.stream: Finished()}
    assert driver.manager.rewound() == {}


def test_two_files_of_one_version() -> None:
    """After a cycle of renames the file whose statement gave the table its name tells the structure."""
    version = TableVersionConsumer(20, {})
    fits = definition("b/t", 20, "RENAME TABLE `a`.`t` TO `b`.`t`", 14)
    left = definition("b/t", 20, "RENAME TABLE `b`.`t` TO `b`.`tmp`", 14)
    for order in ((fits, left), (left, fits)):
        for each in order:
            version.define(each)
        assert version.definition is fits
