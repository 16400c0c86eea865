"""What the manager stops or tells, since going on would lose or mix up rows unseen."""

from __future__ import annotations

from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import FileVerdict, digest_of
from tests.unit.building import changed, data_file, definition, key
from tests.unit.plan.test_manager import Driver, create


def known() -> Driver:
    """A manager that knows the table s.a, made at 5."""
    driver = Driver()
    driver.show([create("s/a", 5)])
    driver.go(9)
    return driver


def test_lost_file_over_a_restart() -> None:
    """A table that lost a file before it was read stands still after a restart too."""
    driver = Driver(Restart(lost={key("s/a"): "rows are missing"}))
    driver.show([create("s/a", 5), create("s/b", 5)], [data_file("s/a", 5, 1)])
    assert driver.go(30) == ["ddl s/b@5"]
    assert driver.manager.tables[key("s/a")].status.error == "rows are missing"


def test_statement_that_comes_after_a_table_went_on() -> None:
    """A statement that touches a table which was applied beyond it is told, not run."""
    driver = known()
    driver.go(30)
    late = definition("s/n", 20, "ALTER TABLE `n` EXCHANGE PARTITION `p` WITH TABLE `a`", 42)
    driver.show([late])
    (step,) = driver.manager.backlog
    assert [str(table.name) for table in driver.manager.touches.beyond(step)] == ["s.a"]


def test_rewound_sequences_are_reported_once() -> None:
    """A finished file whose content changed takes its sequence back, which has to be stored before it is read."""
    driver = known()
    file = data_file("s/a", 5, 1)
    driver.show(files=[file])
    driver.go(30)
    assert driver.manager.sequences.rewound() == {}
    driver.show(files=[changed(file, "other")])
    stored = driver.manager.sequences.rewound()[file.sequence]
    assert stored.judge(1, digest_of(file.stored)) is FileVerdict.REWRITTEN
    assert driver.manager.sequences.rewound() == {}
