"""What is known of a table that may not be as the source's: it goes along with the table's name, and only a look at all rows that came later ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.config.settings import Downstream
from storage_consumer.model import DdlKind, TableName
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.rows.comparison import Span, TableResult, VerifyOutcome
from tests.contract.state_rigs import real_rig, statement
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server

A, B = TableName(schema="shop", table="a"), TableName(schema="shop", table="b")
DOUBT = TableResult(
    table=A,
    target=A,
    outcome=VerifyOutcome.DIFFERENT,
    structure=("lacks the column v",),
    reason="v was dropped",
    heal="storage-consumer table pause --table shop.a --downstream-uri …",
)


@pytest.fixture
def state(server: DatabaseServer) -> Iterator[Any]:
    """The state of the lease's owner, in which a table is in doubt."""
    with closing(real_rig(server)) as rig:
        state = rig.owner()
        state.verified.doubt(key_of(A), DOUBT.document())
        yield state


@pytest.fixture
def desk(server: DatabaseServer, state: Any) -> Iterator[StateStore]:
    """What an operator sees."""
    with closing(operated(Downstream(port=server.port), "")) as found:
        yield found


def of_kind(kind: DdlKind, query: str, table: str = "shop/a") -> DdlStep:
    """A statement of a table."""
    step = statement(table, version=int(kind), query=query)
    return replace(step, definition=replace(step.definition, ddl_type=kind))


def told(desk: StateStore) -> dict[TableName, tuple[VerifyOutcome, str]]:
    """Outcome that counts, and what is to be done, of each table of which anything is known."""
    return {each.table: (each.outcome, each.heal) for each in desk.verified.standing()}


def test_a_doubt_goes_along_with_a_name(state: Any, desk: StateStore) -> None:
    """A renamed table lacks what it lacked, and the commands that mend it have its new name; a statement is taken for done twice after a crash."""
    rename = of_kind(DdlKind.RENAME_TABLE, "RENAME TABLE `shop`.`a` TO `shop`.`b`", "shop/b")
    state.journal.record(rename, "started")
    assert A in told(desk)
    state.journal.record(rename, "done")
    state.journal.record(rename, "done")
    assert told(desk) == {B: (VerifyOutcome.DIFFERENT, DOUBT.heal.replace("shop.a", "shop.b"))}


def test_a_doubt_ends_with_the_table(state: Any, desk: StateStore) -> None:
    """What is created under the name later is another table; one that is emptied keeps its structure."""
    state.journal.record(of_kind(DdlKind.TRUNCATE_TABLE, "TRUNCATE TABLE a"), "done")
    assert A in told(desk)
    state.journal.record(of_kind(DdlKind.DROP_TABLE, "DROP TABLE a"), "done")
    assert told(desk) == {}


def test_a_comparison_that_began_before_ends_no_doubt(state: Any, desk: StateStore) -> None:
    """Nor what it notes on its way; one that begins after the doubt, and finds all rows equal, does."""
    begun = TableResult(table=A, target=A, outcome=VerifyOutcome.UNFINISHED, run="first")
    desk.verified.put(key_of(A), begun)
    state.verified.doubt(key_of(A), DOUBT.document())
    desk.verified.put(key_of(A), replace(begun, spans=(Span(checkpoint=5),)))
    desk.verified.put(key_of(A), replace(begun, outcome=VerifyOutcome.EQUAL))
    assert told(desk) == {A: (VerifyOutcome.DIFFERENT, DOUBT.heal)}
    for outcome in (VerifyOutcome.UNFINISHED, VerifyOutcome.EQUAL):
        desk.verified.put(key_of(A), replace(begun, outcome=outcome, run="second"))
    assert told(desk)[A][0] is VerifyOutcome.EQUAL


def test_what_a_comparison_found_says_more_than_a_doubt(state: Any, desk: StateStore) -> None:
    """It names the rows."""
    found = TableResult(table=A, target=A, outcome=VerifyOutcome.DIFFERENT, checkpoint=5, missing=3, run="first")
    desk.verified.put(key_of(A), found)
    state.verified.doubt(key_of(A), DOUBT.document())
    assert desk.verified.standing() == [found]
