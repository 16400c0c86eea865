"""The schema history: every structure by itself, found immediately, whatever happened to the others or to the bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.journal import definition_of, record_of
from storage_consumer.checkpoint.store import operated
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.journal_entry import DONE, FAILED, SKIPPED, STARTED
from storage_consumer.plan.steps import key_of
from tests.contract.state_rigs import Rig, real_rig, statement
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock

NAME = TableName(schema="Sh`op", table="a.b %s 表")
COLUMNS = (
    TableColumn(name="id", type="BIGINT", unsigned=True, nullable=False, is_pk=True),
    TableColumn(name="kind", type="ENUM", elements=("a", "b'c"), default="b'c"),
    TableColumn(name="price", type="DECIMAL", precision=10, scale=0, default=""),
)


def version(number: int) -> TableDefinition:
    """One version of a table; each has a column of its own."""
    return TableDefinition(
        name=NAME,
        version=TableVersion(number),
        query=f"ALTER TABLE `a` ADD COLUMN `c{number}` INT COMMENT '100% :x \\'q\\''",
        ddl_type=5,
        columns=(*COLUMNS, TableColumn(name=f"c{number}", type="INT")),
        path=f"shop/a/meta/schema_{number}_0000000007.json",
        checksum=7,
    )


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.server) for kind in KINDS)])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Each state in turn."""
    if request.param == "memory":
        records, clock = TargetRecords(), FakeClock()
        found = Rig(lambda: MemoryState(records, clock), lambda: clock.advance(31))
    else:
        found = real_rig(request.getfixturevalue(request.param))
    yield found
    found.close()


def test_statements_that_are_not_resolved(rig: Rig) -> None:
    """Kept statements without a journal entry, or with one that is neither done nor skipped, are found again; structures are not."""
    state = rig.owner()
    numbers = {DONE: 5, SKIPPED: 6, FAILED: 7, STARTED: 8, "unknown": 9}
    state.history.keep([("shop/a", version(number)) for number in numbers.values()])
    state.history.keep([("shop/a", replace(version(10), query="", ddl_type=0))])
    for where in (DONE, SKIPPED, FAILED, STARTED):
        state.journal.record(statement("shop/a", numbers[where], 7), where)
    assert state.history.unresolved() == [("shop/a", 7), ("shop/a", 8), ("shop/a", 9)]


def test_kept_as_it_was_read(rig: Rig) -> None:
    """What a schema file says comes back attribute by attribute, to another process too; a changed file takes the old one's place."""
    first = rig.owner()
    first.history.keep([("shop/a", version(5)), ("shop/a", version(6))])
    first.history.keep([("shop/a", replace(version(6), query="ALTER TABLE `a` COMMENT 'x'"))])
    second = rig.owner()
    second.history.keep([("shop/a", version(5))])
    assert second.history.kept("shop/a", 5) == [version(5)]
    assert [d.query for d in second.history.kept("shop/a", 6)] == ["ALTER TABLE `a` COMMENT 'x'"]
    assert (second.history.kept("shop/a", 7), second.history.kept("shop/b", 5)) == ([], [])


def test_known_versions(rig: Rig) -> None:
    """Every version of which a schema file was read is known by its directory, to another process too."""
    assert rig.owner().history.known_versions() == frozenset()
    rig.owner().history.keep([("shop/a", version(5)), ("shop/a", version(6)), ("shop/b", version((1 << 64) - 1))])
    assert rig.owner().history.known_versions() == {("shop/a", 5), ("shop/a", 6), ("shop/b", (1 << 64) - 1)}


def test_a_row_that_was_changed_is_found_out() -> None:
    """A record goes to a row and back; a row that somebody changed is refused, and says what to restore."""
    record = record_of("shop/a", version(5))
    assert definition_of(record) == version(5)
    with pytest.raises(
        MalformedSchemaFile, match=r"version 5 is damaged.*Restore shop/a/meta/schema_5_0000000007\.json"
    ):
        definition_of({**record, "columns": str(record["columns"]).replace("BIGINT", "INT")})


@pytest.mark.slow
@pytest.mark.server
def test_ten_thousand_versions(mariadb: DatabaseServer) -> None:
    """Among 10,000 versions one entry is read, in less than 5 ms where the machine is free; a damaged one affects only itself; a restart writes nothing."""
    rig = real_rig(mariadb)
    versions = [("shop/a", version(number)) for number in range(10, 100_010, 10)]
    rig.owner().history.keep(versions)
    again = rig.owner()
    inserts = "SHOW GLOBAL STATUS LIKE 'Com_insert'"
    before = mariadb.query(inserts)
    again.history.keep(versions)
    assert mariadb.query(inserts) == before
    mariadb.query("UPDATE storage_consumer.schema_history SET columns = '[' WHERE version = 50000")
    with closing(operated(Downstream(port=mariadb.port), "")) as desk:
        key = key_of(NAME)
        taken = []
        for number in range(20, 100_000, 997):
            began = time.perf_counter()
            found = desk.history.structure_at(key, number + 3)
            taken.append(time.perf_counter() - began)
            assert found is not None
            assert found.definition == version((number + 3) // 10 * 10)
        read = int(dict(mariadb.query("SHOW GLOBAL STATUS LIKE 'Handler_read_prev'"))["Handler_read_prev"])
        assert desk.history.structure_at(key, 77_777) is not None
        now = int(dict(mariadb.query("SHOW GLOBAL STATUS LIKE 'Handler_read_prev'"))["Handler_read_prev"])
        assert now - read < 10
        damaged, intact = desk.history.structure_at(key, 50_009), desk.history.structure_at(key, 50_010)
    assert min(taken) < 0.005
    assert damaged is not None
    assert (damaged.definition, "is damaged" in damaged.damage) == (None, True)
    assert intact is not None
    assert intact.definition == version(50_010)
    rig.close()
