"""Short ways to say what tests of planning and progress are about: schema files, data files, steps."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.model import DataFile, StoredObject, TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.sql.parse import parsed

ALTER, CREATE, DROP, RENAME, CREATE_DATABASE, DROP_DATABASE = 61, 3, 4, 14, 1, 2
COLUMNS = (TableColumn(name="id", type="INT", is_pk=True, nullable=False), TableColumn(name="v", type="VARCHAR"))


def named(table_dir: str) -> TableName:
    """The table (or database) of a directory."""
    schema, _, table = table_dir.partition("/")
    return TableName(schema=schema, table=table)


def key(table_dir: str) -> str:
    """The key of the table (or database) of a directory."""
    return key_of(named(table_dir))


def place(table_key: str) -> str:
    """The directory of a key's table, where it has one by its name."""
    return table_key.replace("`", "").replace(".", "/")


def definition(table_dir: str, version: int, query: str = "", kind: int = ALTER, checksum: int = 1) -> TableDefinition:
    """A schema file of the directory; it only records a structure where there is no `query`."""
    return TableDefinition(
        name=named(table_dir),
        version=TableVersion(version),
        query=query,
        ddl_type=kind if query else 0,
        columns=COLUMNS if named(table_dir).table else (),
        path=f"{table_dir}/meta/schema_{version}_{checksum}.json",
        checksum=checksum,
    )


def step(table_dir: str, version: int, query: str = "", kind: int = ALTER, checksum: int = 1) -> DdlStep:
    """A statement in its place, or a structure that has to be there."""
    made = definition(table_dir, version, query, kind, checksum)
    return DdlStep(table_dir=table_dir, table_key=key_of(parsed(made).subject), definition=made, ensure=not query)


def data_file(  # noqa: PLR0913 - the parts of a path
    table_dir: str,
    version: int,
    number: int,
    *,
    tag: str = "1",
    partition: int | None = None,
    width: int = 20,
    dispatcher: str = "",
    date: str = "",
) -> DataFile:
    """A data file of the directory."""
    folder = f"{table_dir}/{version}" + ("" if partition is None else f"/{partition}") + (date and f"/{date}")
    stem = f"CDC_{dispatcher}_{number:0{width}d}" if dispatcher else f"CDC{number:0{width}d}"
    return DataFile(
        stored=StoredObject(path=f"{folder}/{stem}.csv", size=10, tag=tag),
        table_dir=table_dir,
        version=TableVersion(version),
        partition=partition,
        date=date,
        dispatcher=dispatcher,
        number=number,
        width=width,
    )


def changed(file: DataFile, tag: str) -> DataFile:
    """The same file with other content."""
    return replace(file, stored=replace(file.stored, tag=tag))
