"""Names that look alike: composed and decomposed letters, letters of other alphabets, blanks and what takes no room, at either end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage_consumer.bucket.inventory import Inventory
from storage_consumer.config.settings import Downstream
from storage_consumer.model import TableName, TableVersion
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.steps import key_of
from storage_consumer.ports import TableProgress
from storage_consumer.target.database import TargetDatabase
from tests.contract.rigs import Rig, listed
from tests.contract.state_rigs import real_rig, statement
from tests.harness.servers import DatabaseServer, quoted

V = 449000000000000001
TWINS = ("caf\u00e9", "cafe\u0301", "cafe", "caf\u0435", "cafe\u200b", "c afe", "\ufeffcafe", "cafe\u00a0")
"""Names that are other names to TiDB."""
PADDED = (*TWINS, "cafe ", "CAFE", "cafe\u3000", "cafe\u00ad")
"""What may be in a path besides: nothing forbids a folder any name."""


@pytest.mark.parametrize("names", [TWINS, PADDED])
def test_paths(rig: Rig, names: Sequence[str]) -> None:
    """Every store shows them as so many folders, and each file is of its own table directory."""
    for name in names:
        rig.put(f"shop/{name}/meta/schema_{V}_0000000001.json", b"{}")
        rig.put(f"shop/{name}/{V}/CDC000001.csv", name.encode())
    assert len(listed(rig.storage)) == 2 * len(set(names))
    inventory = Inventory(None, partition_separator=None, extension="csv")
    found = inventory.observe(rig.storage.listing(frozenset(), {}), full=True, checkpoint=V)
    assert {file.table_dir for file in found.data_files} == {f"shop/{name}" for name in names}
    for file in found.data_files:
        assert rig.storage.read(file.stored.path).decode() == file.table_dir.removeprefix("shop/")


@pytest.mark.server
def test_state(server: DatabaseServer) -> None:
    """The state keeps each apart, also by directories that differ by a blank at the end."""
    rig = real_rig(server)
    state = rig.owner()
    names = [TableName(schema="shop", table=name) for name in PADDED]
    keys = {key_of(name) for name in names}
    stored = [
        TableProgress(table_key=key, schema="shop", table="x", checkpoint=number, state="running")
        for number, key in enumerate(sorted(keys), start=1)
    ]
    sequences = {f"shop/{name}/{V}||6": Finished(upto=number) for number, name in enumerate(PADDED, start=1)}
    state.progress.save(tables=stored, sequences=sequences, checkpoint=0, storage_checkpoint=0)
    definitions = [
        statement(f"shop/{name}", V, number).definition for number, name in enumerate(PADDED)
    ]  # TiCDC hashes the name
    state.history.keep([(f"shop/{name}", definition) for name, definition in zip(PADDED, definitions, strict=True)])
    restart, _ = state.progress.load()
    assert restart.tables == {table.table_key: table.checkpoint for table in stored}
    assert restart.done == sequences
    assert state.history.known_versions() == {(f"shop/{name}", TableVersion(V)) for name in PADDED}
    rig.close()


@pytest.mark.server
def test_target(server: DatabaseServer) -> None:
    """Of tables that the server tells apart each is found by its own name, with its own columns."""
    server.query("CREATE DATABASE shop")
    made = [name for name in TWINS if not name.endswith("\u00a0")]
    for number, name in enumerate(made):
        server.query(f"CREATE TABLE shop.{quoted(name)} (c{number} INT PRIMARY KEY)")
    database = TargetDatabase(Downstream(port=server.port), "")
    wanted = [TableName(schema="shop", table=name) for name in made]
    found = database.describe(wanted)
    assert [found[name.folded()].columns[0].name for name in wanted] == [f"c{number}" for number in range(len(made))]
    assert database.existing(wanted) == {name.folded(): name for name in wanted}
    database.close()
