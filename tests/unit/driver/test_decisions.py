"""What an operator decides about a statement that stopped its table: obeyed while the program runs, and at its next start."""

from __future__ import annotations

from typing import Literal

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.driver.remedies import ddl_command
from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.steps import DdlStep
from storage_consumer.rows.fitting import TargetTable
from tests.contract.state_rigs import statement
from tests.harness.small_bucket import ID_NAME, column, row, ts
from tests.unit.deciding import answer, failed
from tests.unit.driving import World, of, running

ALTER = 5
WIDER = (*ID_NAME, column("note", "VARCHAR", ColumnPrecision="20"))
REPLACEMENT = "ALTER TABLE `a` ADD COLUMN `note` VARCHAR"


@pytest.fixture
def world() -> World:
    """A table with a statement that no target takes, and a row behind it; another table beside it."""
    found = World()
    found.bucket.create("shop.a", "shop.b")
    found.bucket.schema("shop.a", ts(4), "ALTER TABLE `a` ADD COLUMN `id` VARCHAR(20)", ALTER, WIDER)
    found.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    found.bucket.rows("shop.a", 1, row("shop.a", 5, "2", '"two"', '"n"'), version=ts(4))
    found.bucket.rows("shop.b", 1, row("shop.b", 2, "1", '"b"'))
    found.bucket.metadata(ts(6))
    return found


def test_message_holds_the_ways_on(world: World) -> None:
    """The error of the halted table holds the commands, complete but for the secrets (D13)."""
    error = of(world.once(), "shop.a").error
    where = f"--table shop.a --version {ts(4)} --downstream-uri mysql://root@127.0.0.1:3306/"
    for verb in ("done", "skip", "replace"):
        assert f"storage-consumer ddl {verb} {where}" in error
    assert "ddl_journal" not in error


@pytest.mark.parametrize(("verb", "sql", "state"), [("replace", REPLACEMENT, "done"), ("done", "", "done")])
def test_obeyed_while_it_runs(world: World, verb: Literal["done", "replace"], sql: str, state: str) -> None:
    """The table stands still while the others go on; after a decision it goes on at the next round, without a restart."""
    seen: list[list[str]] = []

    def act(rounds: int) -> None:
        seen.append([str(r["id"]) for r in world.rows("shop.a")])
        if rounds == 2:
            if verb == "done":
                world.records.structures.update(_altered(world))
            answer(world, verb, sql)

    identity = None
    summary = running(world, act, rounds=4)
    identity = next(i for i in world.records.journal if i[1] == ts(4))
    assert seen == [["1"], ["1"], ["1", "2"], ["1", "2"]]
    assert summary.halted == ()
    assert world.records.journal[identity].state == state
    assert "decided by op" in world.records.journal[identity].note
    assert [effect for effect in world.records.effects if "note" in effect] == ([sql] if sql else [])


def _altered(world: World) -> dict[TableName, TargetTable]:
    """The structures with the column that the statement adds."""
    other = World()
    other.bucket.create("shop.a")
    other.bucket.schema("shop.a", ts(4), REPLACEMENT, ALTER, WIDER)
    other.once(6)
    names = {name for name in world.records.structures if name.table == "a"}
    return {name: table for name, table in other.records.structures.items() if name in names}


def test_skipped_at_the_next_start(world: World) -> None:
    """A statement that is not to run is passed over by a new process; its journal says who decided."""
    world.once()
    identity = failed(world)
    answer(world, "skip")
    summary = world.once()
    assert world.records.journal[identity].state == "skipped"
    assert "lacks" in of(summary, "shop.a").error or "column" in of(summary, "shop.a").error
    assert of(world.once(), "shop.a").ddls == 0


def test_replacement_that_is_refused_too(world: World) -> None:
    """A text that the target refuses too stops the table again, once per decision, and the next decision counts."""
    tries: list[int] = []

    def act(rounds: int) -> None:
        tries.append(world.records.journal[identity()].note.count("error"))
        if rounds == 1:
            answer(world, "replace", "ALTER TABLE `a` NONSENSE")
        if rounds == 3:
            answer(world, "replace", REPLACEMENT)

    def identity() -> DdlId:
        return next(i for i in world.records.journal if i[1] == ts(4))

    calls: list[str] = []
    world.tick = calls.append
    running(world, act, rounds=5)
    assert world.records.journal[identity()].state == "done"
    assert (
        calls.count("before MemoryTarget.execute_ddl") == 3 + 3
    )  # what made the tables; the original and two replacements


def test_vanished_schema_file(world: World) -> None:
    """A directory whose schema file has vanished is read with what was kept of it, by a new process too."""
    world = World()
    world.bucket.create("shop.a")
    world.bucket.rows("shop.a", 1, row("shop.a", 2, "1", '"one"'))
    world.once(3)
    for path in [path for path in world.bucket.storage._objects if path.startswith("shop/a/meta/")]:
        world.bucket.storage.delete(path)
    world.bucket.rows("shop.a", 2, row("shop.a", 5, "2", '"two"'))
    summary = world.once(6)
    assert (summary.halted, summary.checkpoint) == ((), ts(6))
    assert [r["id"] for r in world.rows("shop.a")] == ["1", "2"]


def test_command_reaches_the_same_target() -> None:
    """The command names socket, TLS, password file and state schema as they were given; a password is left out, and may come from the environment."""
    step: DdlStep = statement("sh op/a")
    tls = Downstream(ssl=True, ssl_ca="ca.pem", state_schema="other", password_file="/run/pw")  # noqa: S106 - a path
    assert ddl_command("done", step, tls) == (
        "storage-consumer ddl done --table 'sh op.a' --version 5 --downstream-uri mysql+ssl://root@127.0.0.1:3306/ "
        "--downstream-password-file /run/pw --state-schema other --ssl-ca ca.pem"
    )
    given = Downstream(given_uri="mysql://app:secret@db:3306/?safe-mode=true", unix_socket="/x")
    assert "--downstream-uri 'mysql://app@db:3306/?safe-mode=true'" in ddl_command("skip", step, given)
    trusting = Downstream(allow_unverified_server=True)
    assert ddl_command("skip", step, trusting).endswith(" --allow-unverified-server")
