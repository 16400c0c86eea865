"""A row that a CHECK refuses is named, by whichever way the rows go to whichever server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from storage_consumer.errors import RowRefused
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.transaction import FencedConnection
from tests.contract.test_writer import Rig, real_rig
from tests.harness.servers import KINDS, DatabaseServer
from tests.unit.halves import table

pytestmark = pytest.mark.server


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server of each kind; TiDB enforces a CHECK only where it is told to."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    if found.kind == "tidb":
        found.query("SET GLOBAL tidb_enable_check_constraint = ON")
    yield found
    if found.kind == "tidb":
        found.query("SET GLOBAL tidb_enable_check_constraint = OFF")


@pytest.fixture
def rig(server: DatabaseServer) -> Iterator[Rig]:
    """``shop.orders`` with a key, and a CHECK on its other column."""
    with closing(real_rig(server, "c0")) as made:
        server.query("ALTER TABLE shop.orders ADD CONSTRAINT fits CHECK (c1 NOT LIKE 'bad%')")
        yield made


@pytest.mark.parametrize("load_data", [True, False])
@pytest.mark.parametrize("verb", ["insert", "replace"])
def test_the_row_is_named(rig: Rig, server: DatabaseServer, verb: str, *, load_data: bool) -> None:
    """None is left out in silence; nor is one whose absence the rows that take another's place make up for in number."""
    if verb == "replace":
        # Two count for its replacement: as many rows are affected as were sent, though one is missing.
        server.query("INSERT INTO shop.orders VALUES ('a', 'old')")
    rows = Sent(rig, load_data=load_data)
    with (
        closing(rows.target.fenced),
        pytest.raises(RowRefused, match=r"shop\.orders: the target refused the row with c0 = 'b'"),
    ):
        rows.send(verb, [b"a\tnew", b"b\tbad", b"c\tfine"])
    assert rig.rows() == ({("a", "old"): 1} if verb == "replace" else {})


def test_switched_on_meanwhile(rig: Rig, server: DatabaseServer) -> None:
    """A connection that was opened before TiDB began to look at them loses no row either."""
    if server.kind == "tidb":
        server.query("SET GLOBAL tidb_enable_check_constraint = OFF")
    rows = Sent(rig, load_data=True)
    with closing(rows.target.fenced):
        rows.send("replace", [b"a\tfine", b"b\tfine"])
        if server.kind == "tidb":
            server.query("SET GLOBAL tidb_enable_check_constraint = ON")
        with pytest.raises(RowRefused, match=r"c0 = 'b'"):
            rows.send("replace", [b"a\tnew", b"b\tbad"])
    assert rig.rows() == {("a", "fine"): 1, ("b", "fine"): 1}


class Sent:
    """Rows that one connection sends."""

    def __init__(self, rig: Rig, *, load_data: bool) -> None:
        """By LOAD DATA where the server takes it, or by literals."""
        self.target = RowStatements(FencedConnection(replace(rig.spec, load_data=load_data), "", 0))

    def send(self, verb: str, rows: list[bytes]) -> None:
        """Write them in one transaction."""
        born, others = (rows, []) if verb == "insert" else ([], rows)
        self.target.fenced.transaction(table(), lambda: self.target.put(table(), born, others, is_settled=True))
