"""TIMESTAMP in statements of a feed whose zone has daylight saving time, on servers that know no zone by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableColumn
from storage_consumer.plan.journal_entry import FAILED
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.runner import DdlRunner
from tests.contract.test_ddl_runner import ALTER, COLUMNS, Rig, rig
from tests.harness.servers import KINDS

ADD_PARTITION = 19

__all__ = ["rig"]
pytestmark = pytest.mark.server
ZONE = "America/New_York"
"""Four hours behind UTC when the statements of these tests run, five in winter."""


class Zoned(Rig):
    """As `Rig`, of a feed with a named zone."""

    @property
    def runner(self) -> DdlRunner:
        """A runner as a new process would have it."""
        self.database.close()
        self.database = TargetDatabase(Downstream(port=self.server.port, time_zone=ZONE), "")
        return DdlRunner(self.database, self.state.journal, self.server.kind)


@pytest.fixture
def zoned(rig: Rig) -> Zoned:
    """The same target."""
    return Zoned(server=rig.server, state=rig.state, database=rig.database)


ON_ALL = pytest.mark.parametrize("rig", KINDS, indirect=True)


@ON_ALL
@pytest.mark.parametrize(
    ("text", "utc", "seconds"),
    [
        ("2020-01-01 00:00:00", "2020-01-01 05:00:00", 1_577_854_800),
        ("2020-07-01 00:00:00", "2020-07-01 04:00:00", 1_593_576_000),
        ("2020-01-01 08:00:00", "2020-01-01 00:00:00", 1_577_836_800),  # typed in another zone
    ],
)
def test_default_of_either_half_of_the_year(zoned: Zoned, text: str, utc: str, seconds: int) -> None:
    """A default is the source's moment, whether the server knows the zone by its name or takes the offset of the statement."""
    step = zoned.step(f"ALTER TABLE `a` ADD COLUMN `at` TIMESTAMP NOT NULL DEFAULT '{text}'", ALTER)
    at = TableColumn(name="at", type="TIMESTAMP", nullable=False, default=utc)
    zoned.run(replace(step, definition=replace(step.definition, columns=(*COLUMNS, at))))
    zoned.server.query("INSERT INTO shop.a (id) VALUES (2)")
    assert zoned.server.query("SELECT UNIX_TIMESTAMP(at) FROM shop.a ORDER BY id") == ((seconds,), (seconds,))


@pytest.mark.parametrize("rig", [kind for kind in KINDS if kind != "tidb"], indirect=True)
@pytest.mark.parametrize(
    ("query", "kind", "what"),
    [
        (
            "ALTER TABLE `d` MODIFY COLUMN `at` TIMESTAMP NULL",
            "TIMESTAMP",
            "values of at .* from DATETIME to TIMESTAMP",
        ),
        ("ALTER TABLE `d` CHANGE COLUMN `was` `at` DATETIME", "DATETIME", "values of at .* from TIMESTAMP to DATETIME"),
        (
            "ALTER TABLE `d` ADD PARTITION (PARTITION `p` VALUES LESS THAN (UNIX_TIMESTAMP('2020-01-01 00:00:00')))",
            "TIMESTAMP",
            r"UNIX_TIMESTAMP\('2020-01-01 00:00:00'\)",
        ),
    ],
)
def test_moments_that_one_offset_cannot_tell(zoned: Zoned, query: str, kind: str, what: str) -> None:
    """Where a server that does not know the zone would make other moments of some rows, the table stops with the remedy."""
    zoned.server.query("CREATE TABLE shop.d (id INT PRIMARY KEY, at DATETIME, was TIMESTAMP NULL)")
    step = zoned.step(query, ADD_PARTITION if "PARTITION" in query else ALTER, "shop.d")
    step = replace(step, definition=replace(step.definition, columns=(*COLUMNS, TableColumn(name="at", type=kind))))
    with pytest.raises(NotReplicable, match=f"{what}, in {ZONE}, .*mysql_tzinfo_to_sql"):
        zoned.run(step)
    assert zoned.journalled(step) == FAILED


@ON_ALL
def test_other_changes_of_such_columns(zoned: Zoned) -> None:
    """A change that leaves the moments as they are runs without the zone's name."""
    zoned.run(zoned.step("CREATE TABLE `d` (`id` INT PRIMARY KEY, `at` TIMESTAMP NULL)", 3, "shop.d"))
    step = zoned.step("ALTER TABLE `d` MODIFY COLUMN `at` TIMESTAMP(3) NULL COMMENT 'x'", ALTER, "shop.d")
    at = TableColumn(name="at", type="TIMESTAMP", scale=3)
    zoned.run(replace(step, definition=replace(step.definition, columns=(*COLUMNS, at))))
    assert zoned.columns("d") == ["at", "id"]
