"""States under test, and short ways to say what is stored in them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.ports import TableProgress
from storage_consumer.rows.spec import JobSpec
from storage_consumer.target.state_tables import state_tables
from tests.harness.servers import DatabaseServer, quoted
from tests.harness.twins.state import MemoryState

BUCKET = "file:///some/bucket"


class Rig:
    """A target, handles on its state, and its clock."""

    def __init__(self, new: Callable[[], StateStore | MemoryState], expire: Callable[[], None]) -> None:
        """`expire`: have the lease run out by the database's clock."""
        self._new = new
        self._stack = ExitStack()
        self.expire = expire
        self.done: Callable[[DdlStep], None] = lambda _: None
        """Have an operator say that a statement is done; for tests that put a way there."""

    def handle(self) -> Any:
        """A process's handle, nothing opened; closed at the end."""
        state = self._new()
        self._stack.callback(state.close)
        return state

    def owner(self, holder: str = "me") -> Any:
        """A handle that holds the lease."""
        state = self.handle()
        state.open(BUCKET)
        assert state.lease.acquire(holder, 30) == ""
        return state

    def close(self) -> None:
        """Close all handles."""
        self._stack.close()


def real_rig(server: DatabaseServer, schema: str = "storage_consumer", user: str = "root") -> Rig:
    """The real store in one schema of a server."""
    downstream = Downstream(port=server.port, state_schema=schema, user=user)

    def expire() -> None:
        server.query(f"UPDATE {quoted(schema)}.lease SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")

    return Rig(lambda: StateStore(downstream, ""), expire)


def progress(name: str, checkpoint: int, state: str = "running", **more: Any) -> TableProgress:
    """What is stored of a table."""
    schema, _, table = name.rpartition("/")
    key = key_of(TableName(schema=schema, table=table))
    return TableProgress(table_key=key, schema=schema, table=table, checkpoint=checkpoint, state=state, **more)


def statement(table_dir: str = "shop/a", version: int = 5, checksum: int = 7, query: str = "ALTER TABLE a") -> DdlStep:
    """A statement in its place."""
    schema, _, table = table_dir.rpartition("/")
    definition = TableDefinition(
        name=TableName(schema=schema, table=table),
        version=TableVersion(version),
        query=query,
        ddl_type=5,
        columns=(),
        path=f"{table_dir}/meta/schema_{version}_{checksum}.json",
        checksum=checksum,
    )
    return DdlStep(table_dir=table_dir, table_key=key_of(definition.name), definition=definition)


def fenced_spec(downstream: Downstream, *, epoch: int = 1, window_id: int = 1, load_data: bool = False) -> JobSpec:
    """A job on this target without any table."""
    return JobSpec(
        origins=(Upstream(scheme="file", root="/bucket", protocol="csv"),),
        downstream=downstream,
        secrets_file="",
        tables=(),
        partitions=1,
        epoch=epoch,
        window_id=window_id,
        statements=state_tables(downstream.state_schema).for_tasks(),
        load_data=load_data,
        max_packet=1 << 24,
    )
