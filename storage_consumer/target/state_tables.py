"""The tables of the state schema in the target: small, InnoDB, created on first start, with a version number."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import BIGINT, DATETIME, INTEGER, MEDIUMTEXT

STATE_VERSION = 1
"""Raised whenever a table changes its shape."""

_PATH = 512
_STREAM = 700


def _tso(name: str) -> Column[Any]:
    return Column(name, BIGINT(unsigned=True), nullable=False, default=0)


class StateTables:
    """All state tables of one schema."""

    def __init__(self, schema: str) -> None:
        """`schema`: the state schema's name."""
        self.metadata = MetaData(schema=schema)

        def table(name: str, *columns: Column[Any]) -> Table:
            return Table(
                name,
                self.metadata,
                *columns,
                mysql_engine="InnoDB",
                mysql_charset="utf8mb4",
                mysql_collate="utf8mb4_bin",
            )

        def one() -> Column[Any]:
            return Column("id", INTEGER, primary_key=True, autoincrement=False)

        self.version = table("version", one(), Column("version", INTEGER, nullable=False))
        self.lease = table(
            "lease",
            one(),
            Column("holder", String(255), nullable=False),
            _tso("epoch"),
            Column("expires_at", DATETIME(fsp=6), nullable=False),
        )
        self.feed = table(
            "feed",
            one(),
            Column("upstream", String(2048), nullable=False),
            _tso("checkpoint"),
            _tso("storage_checkpoint"),
            _tso("window_id"),
        )
        self.tables = table(
            "table_progress",
            Column("table_dir", String(_PATH), primary_key=True),
            Column("schema_name", String(255), nullable=False),
            Column("table_name", String(255), nullable=False),
            _tso("checkpoint"),
            Column("state", String(16), nullable=False),
            Column("error", Text, nullable=False),
        )
        self.files = table("file_progress", Column("stream", String(_STREAM), primary_key=True), _tso("done_upto"))
        self.journal = table(
            "ddl_journal",
            Column("table_dir", String(_PATH), primary_key=True),
            Column("version", BIGINT(unsigned=True), primary_key=True, autoincrement=False),
            Column("checksum", BIGINT(unsigned=True), primary_key=True, autoincrement=False),
            Column("schema_name", String(255), nullable=False),
            Column("table_name", String(255), nullable=False),
            Column("state", String(16), nullable=False),
            Column("query", MEDIUMTEXT, nullable=False),
            Column("statement", MEDIUMTEXT, nullable=False),
            Column("structure_before", String(64), nullable=False),
            Column("note", MEDIUMTEXT, nullable=False),
            Column("started_at", DATETIME(fsp=6)),
            Column("finished_at", DATETIME(fsp=6)),
        )
        self.slots = table(
            "slots", Column("slot", INTEGER, primary_key=True, autoincrement=False), _tso("epoch"), _tso("window_id")
        )
