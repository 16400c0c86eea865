"""What follows from the names of all tables: found out when a table is new, and not again in every round."""

from __future__ import annotations

import pytest

from storage_consumer.config.settings import Route
from storage_consumer.model import DdlKind, TableDefinition, TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.selection import Routes, Selection
from tests.unit.building import CREATE, definition, key, step


class Asked(Routes):
    """Routes that count how often they are asked."""

    count = 0

    def target(self, name: TableName) -> TableName:
        """As ever."""
        self.count += 1
        return super().target(name)


def create(table_dir: str, version: int) -> TableDefinition:
    """CREATE TABLE."""
    return definition(table_dir, version, f"CREATE TABLE `{table_dir.partition('/')[2]}` (`id` INT)", CREATE)


@pytest.fixture
def routes() -> Asked:
    """All databases go into one."""
    return Asked([Route(matcher=("*.*",), target_schema="all")])


@pytest.fixture
def manager(routes: Asked) -> ConsumerManager:
    """Five tables, no two of one name."""
    made = ConsumerManager(Restart(), gap_timeout=60, selection=Selection(routes=routes))
    show(made, *(create(f"s/t{number}", 5) for number in range(5)))
    return made


def show(manager: ConsumerManager, *definitions: TableDefinition) -> None:
    """New schema files are listed."""
    manager.dispatch(definitions, {d.path: d.path.partition("/meta/")[0] for d in definitions}, [])


def test_a_round_without_new_tables_asks_nothing(manager: ConsumerManager, routes: Asked) -> None:
    """Routes are asked once for each table, however many rounds follow."""
    assert manager.refuse_places() == {}
    asked = routes.count
    for _ in range(3):
        manager.new_round()
        show(manager)
        assert manager.refuse_places() == {}
        assert manager.databases == {"s"}
    assert routes.count == asked


def test_a_new_table_is_seen(manager: ConsumerManager) -> None:
    """One that comes later and takes another's name is told in that very round, and again until it halts."""
    assert manager.refuse_places() == {}
    assert manager.databases == {"s"}
    show(manager, create("r/t3", 6))
    for _ in range(2):
        assert list(manager.refuse_places()) == [key("r/t3")]
    assert manager.databases == {"r", "s"}
    manager.tables[key("r/t3")].halt("told", "row")
    assert manager.refuse_places() == {}


@pytest.mark.parametrize(
    ("place", "query", "kind", "late"),
    [
        ("s", "ALTER DATABASE `s` CHARACTER SET utf8mb4", DdlKind.ALTER_SCHEMA, []),
        ("s/v", "CREATE VIEW `v` AS SELECT 1 FROM `t1`", DdlKind.CREATE_VIEW, []),
        ("s", "DROP DATABASE `s`", DdlKind.DROP_SCHEMA, ["s.t1"]),
        ("s/t1", "TRUNCATE TABLE `t1`", DdlKind.TRUNCATE_TABLE, ["s.t1"]),
    ],
)
def test_tables_beyond_a_statement(
    manager: ConsumerManager, place: str, query: str, kind: DdlKind, late: list[str]
) -> None:
    """Only what alters a table may not run behind its rows, which a copy as of later may have brought."""
    manager.tables[key("s/t1")].advance(9)
    statement = step(place, 7, query, kind)
    show(manager, statement.definition)
    assert [str(table.name) for table in manager.touches.beyond(statement)] == late
    assert late or [table.key for table in manager.moved_by(statement)] == [statement.table_key]
