"""What an operator does about a table, in tests over twins."""

from __future__ import annotations

from typing import Literal

from storage_consumer.model import DdlId, TableName
from storage_consumer.plan.journal_entry import FAILED
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import TableDecision, Verb
from storage_consumer.ports import Decision
from tests.harness.small_bucket import row
from tests.unit.driving import World, of, one_table, running

NAME = TableName(schema="shop", table="a")


def decide(world: World, verb: Verb, at: int = 0, table: str = "a", schema: str = "shop") -> None:
    """Write a decision as the command does."""
    world.clock.advance(1)
    key = key_of(TableName(schema=schema, table=table))
    world.records.table_decisions[key] = TableDecision(
        table_key=key, verb=verb, at=at, decided_at=str(world.clock.now()), decided_by="op"
    )


def failed(world: World) -> DdlId:
    """The one statement that stopped its table."""
    (identity,) = (each for each, entry in world.records.journal.items() if entry.state == FAILED)
    return identity


def answer(world: World, verb: Literal["done", "skip", "replace"], statement: str = "") -> None:
    """Decide about the one statement that stopped its table."""
    world.clock.advance(1)
    made = Decision(verb=verb, statement=statement, decided_at=str(world.clock.now()), decided_by="op")
    world.records.decisions[failed(world)] = made


def copied(world: World, *keys: str, table: str = "a", **more: str) -> None:
    """The operator's copy: these rows and no others."""
    name = TableName(schema="shop", table=table)
    world.records.rows[name] = [{"id": key, "name": "copy", **more} for key in keys]


def halts(world: World, table: str = "shop.a") -> str:
    """Run until the table stands still; its error."""

    def act(rounds: int) -> None:
        world.clock.advance(100)

    summary = running(world, act, rounds=4)
    world.stop.requested.clear()
    return of(summary, table).error


def put(world: World, number: int, tick: int, key: str) -> str:
    """A file with one row; its path in the bucket."""
    return str(world.bucket.rows("shop.a", number, row("shop.a", tick, key, '"file"')).relative_to("/bucket"))


def start() -> World:
    """shop.a with the row 1 applied, up to tick 3."""
    world = one_table()
    world.once()
    return world


def gap(world: World) -> None:
    """File 2 never comes; 3 and 4 hold rows before and after the copy."""
    put(world, 3, 6, "3")
    put(world, 4, 12, "4")
