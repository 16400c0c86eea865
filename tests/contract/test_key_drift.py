"""Statements around which the keys of their tables are noted: the real runner, notes and structure on every server."""

from __future__ import annotations

import pytest

from storage_consumer.errors import NotReplicable
from storage_consumer.model import TableName
from storage_consumer.ports import DdlContext
from storage_consumer.target.ddl.runner import DdlRunner
from tests.contract import test_ddl_runner as rigs
from tests.contract.test_ddl_runner import ALTER, DROP, Rig
from tests.harness.servers import KINDS

pytestmark = pytest.mark.server
rig = rigs.rig
A = TableName(schema="shop", table="a")
CONTEXT = DdlContext(database_is_ours=True, table_was_seen=True)


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_what_a_statement_leaves_is_noted(rig: Rig) -> None:
    """A key of ours is no change; one that somebody adds after it stops rows and statements alike, but no DROP."""
    runner = DdlRunner(rig.database, rig.state.journal, rig.server.kind)
    runner.run(rig.step("ALTER TABLE `a` ADD UNIQUE `u`(`name`)", ALTER), CONTEXT, [])
    assert rig.database.describe([A])[A].key_drift == ""
    rig.run_elsewhere("ALTER TABLE a ADD UNIQUE mine (id, name)")
    assert rig.database.describe([A])[A].key_drift == "unique key over `id`, `name`"
    step = rig.step("ALTER TABLE `a` ADD COLUMN `more` INT", ALTER)
    with pytest.raises(NotReplicable, match=r"shop\.a: somebody changed .* unique key over `id`, `name`"):
        runner.run(step, CONTEXT, [])
    rig.run_elsewhere("ALTER TABLE a DROP INDEX mine")
    runner.run(step, CONTEXT, [])
    rig.run_elsewhere("ALTER TABLE a ADD UNIQUE mine (id, name)")
    runner.run(rig.step("DROP TABLE `a`", DROP), CONTEXT, [])
    assert rig.columns() == []


@pytest.mark.parametrize("rig", [kind for kind in KINDS if kind != "mariadb"], indirect=True)
def test_keys_over_expressions(rig: Rig) -> None:
    """One that somebody adds stops rows, each of two of them: REPLACE would remove the rows that it finds equal."""
    rig.run_elsewhere("ALTER TABLE a ADD UNIQUE ours ((lower(name)))")
    rig.database.remember([A])
    assert rig.database.describe([A])[A].key_drift == ""
    rig.run_elsewhere("ALTER TABLE a ADD UNIQUE mine ((upper(name)), id)")
    assert rig.database.describe([A])[A].key_drift == "unique key over (upper(`name`)), `id`"


@pytest.mark.parametrize("rig", KINDS, indirect=True)
def test_only_what_was_noted_is_known(rig: Rig) -> None:
    """A table that no statement left behind has no note, in whatever case it is asked for, and without a state there is none."""
    other = TableName(schema="shop", table="Else")
    assert rig.database.noted([A, other]) == {}
    rig.database.remember([A])
    assert rig.database.noted([TableName(schema="Shop", table="A"), other]) == {
        A: ["unique key over `id`", "with keys over expressions"]
    }
    rig.server.query("DROP DATABASE storage_consumer")
    assert rig.database.noted([A, other]) == {}
