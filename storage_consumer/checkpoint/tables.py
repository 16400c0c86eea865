"""The tables of the state schema in the target: small, InnoDB, created on first start, with a version number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import BOOLEAN, Column, MetaData, Select, String, Table, Text, UniqueConstraint, text
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.mysql import BIGINT, DATETIME, DOUBLE, INTEGER, MEDIUMTEXT, VARBINARY

from storage_consumer.plan.finished_files import CHUNK, WIDTH

STATE_VERSION = 4
"""Increased whenever a table changes its shape."""
MIGRATED = (2, 3)
"""Older versions that can be migrated: they lack tables, which are created, and columns of `StateTables.added`."""

_PATH = 512
_STREAM = 700
_NAME = 255


class StateTables:
    """All state tables of one schema."""

    def __init__(self, schema: str) -> None:
        """Define the tables in the state schema called `schema`."""
        self.metadata = MetaData(schema=schema)
        self.version = self._table("version", _number("id"), Column("version", INTEGER, nullable=False))
        self.lease = self._table(
            "lease",
            _number("id"),
            _text("holder"),
            _tso("epoch"),
            Column("expires_at", DATETIME(fsp=6), nullable=False),
        )
        self.feed = self._table(
            "feed",
            _number("id"),
            Column("upstream", String(2048), nullable=False),
            _tso("checkpoint"),
            Column("checkpoint_running", BIGINT(unsigned=True), nullable=False, default=0, server_default=text("0")),
            _tso("storage_checkpoint"),
            _tso("window_id"),
        )
        self.tables = self._table("table_progress", *_progress_columns())
        self.files = self._table(
            "file_progress", Column("stream", String(_STREAM), primary_key=True), _tso("done_upto"), _tso("left_out")
        )
        self.digests = self._table("file_digests", *_digest_columns())
        self.targets = self._table(
            "table_targets",
            Column("table_key", String(_PATH), primary_key=True),
            _text("target_schema"),
            _text("target_table"),
        )
        self.journal = self._table("ddl_journal", *_journal_columns())
        self.decisions = self._table("ddl_decision", *_decision_columns())
        self.copies = self._table("table_copies", *_copy_columns())
        self.table_decisions = self._table("table_decision", *_table_decision_columns())
        self.structures = self._table("schema_history", *_structure_columns())
        self.keys = self._table(
            "table_keys",
            Column("table_key", String(_PATH), primary_key=True),
            Column("unique_keys", MEDIUMTEXT, nullable=False),
        )
        self.slots = self._table(
            "slots",
            _number("slot"),
            _tso("epoch"),
            _tso("window_id"),
            Column("attempt", String(32), nullable=False),
            Column("finished", BOOLEAN, nullable=False),
        )

    def added(self) -> Iterator[tuple[Table, Column[Any]]]:
        """Yield the columns that tables of an older version may lack; each has a default."""
        yield self.feed, self.feed.c.checkpoint_running
        for name in ("structure_after", "seconds", "answer"):
            yield self.journal, self.journal.c[name]
        yield self.files, self.files.c.left_out

    def removed(self) -> Iterator[tuple[Table, str]]:
        """Yield the columns that tables of an older version may have, and that nothing writes any more."""
        yield self.files, "tag"

    def _table(self, name: str, *columns: Column[Any] | UniqueConstraint) -> Table:
        return Table(
            name, self.metadata, *columns, mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin"
        )


def _number(name: str) -> Column[Any]:
    return Column(name, INTEGER, primary_key=True, autoincrement=False)


def _text(name: str) -> Column[Any]:
    return Column(name, String(_NAME), nullable=False)


def as_text(query: Select[Any]) -> tuple[str, list[Any]]:
    """Return a query as the driver takes it, with ``%s`` for each argument, and the arguments."""
    made = query.compile(dialect=mysql.dialect(), compile_kwargs={"render_postcompile": True})
    return str(made), [made.params[name] for name in made.positiontup or ()]


def _tso(name: str) -> Column[Any]:
    return Column(name, BIGINT(unsigned=True), nullable=False, default=0)


def _identity() -> tuple[Column[Any], ...]:
    """Return the columns that identify a schema file across restarts; see `DdlStep.identity`."""
    return (
        Column("table_dir", String(_PATH), primary_key=True),
        Column("version", BIGINT(unsigned=True), primary_key=True, autoincrement=False),
        Column("checksum", BIGINT(unsigned=True), primary_key=True, autoincrement=False),
    )


def _progress_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per table: how far it is, and what stops it."""
    return (
        Column("table_key", String(_PATH), primary_key=True),
        _text("schema_name"),
        _text("table_name"),
        _tso("checkpoint"),
        Column("state", String(16), nullable=False),
        Column("follows", BOOLEAN, nullable=False),
        Column("error", Text, nullable=False),
    )


def _digest_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per `CHUNK` consecutive numbers of a stream: a digest of each finished file."""
    return (
        Column("stream", String(_STREAM), primary_key=True),
        Column("chunk", BIGINT(unsigned=True), primary_key=True, autoincrement=False),
        Column("digests", VARBINARY(CHUNK * WIDTH), nullable=False),
    )


def _journal_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per statement: what the file says, what ran, and its state."""
    return (
        *_identity(),
        _text("schema_name"),
        _text("table_name"),
        Column("state", String(16), nullable=False),
        Column("query", MEDIUMTEXT, nullable=False),
        Column("statement", MEDIUMTEXT, nullable=False),
        Column("structure_before", String(64), nullable=False),
        Column("structure_after", String(64), nullable=False, server_default=text("''")),
        Column("note", MEDIUMTEXT, nullable=False),
        Column("answer", MEDIUMTEXT),
        Column("seconds", DOUBLE),
        Column("started_at", DATETIME(fsp=6)),
        Column("finished_at", DATETIME(fsp=6)),
    )


def _decision_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per statement that an operator decided on; it counts until the journal says done or skipped."""
    return (
        *_identity(),
        Column("verb", String(16), nullable=False),
        Column("statement", MEDIUMTEXT, nullable=False),
        Column("decided_at", DATETIME(fsp=6), nullable=False),
        _text("decided_by"),
    )


def _copy_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per table that lacked files, or that an operator copied; see `Copies`."""
    return (
        Column("table_key", String(_PATH), primary_key=True),
        _tso("copy_from"),
        Column("absent", MEDIUMTEXT, nullable=False),
        Column("copied_at", BIGINT(unsigned=True), nullable=False, server_default=text("0")),
        Column("passed", MEDIUMTEXT),
        Column("listed", MEDIUMTEXT),
        Column("listed_at", BIGINT(unsigned=True), nullable=False, server_default=text("0")),
    )


def _table_decision_columns() -> tuple[Column[Any], ...]:
    """Return the columns of one row per table with the operator's last decision; without `obeyed_at` no consumer has seen it."""
    return (
        Column("table_key", String(_PATH), primary_key=True),
        Column("verb", String(16), nullable=False),
        _tso("copy_as_of"),
        _text("to_schema"),
        _text("to_table"),
        Column("decided_at", DATETIME(fsp=6), nullable=False),
        _text("decided_by"),
        Column("obeyed_at", DATETIME(fsp=6)),
        Column("refusal", Text),
    )


def _structure_columns() -> tuple[Column[Any] | UniqueConstraint, ...]:
    """Return the columns of one row per schema file that was read: what it says of its table at its version."""
    return (
        *_identity(),
        Column("table_key", String(_PATH), nullable=False),
        _text("schema_name"),
        _text("table_name"),
        Column("ddl_type", INTEGER, nullable=False),
        Column("path", String(_STREAM), nullable=False),
        Column("query", MEDIUMTEXT, nullable=False),
        Column("columns", MEDIUMTEXT, nullable=False),
        Column("digest", String(32), nullable=False),
        UniqueConstraint("table_key", "version", "digest", name="by_table"),
    )
