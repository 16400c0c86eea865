"""The state schema's tables: small, InnoDB, created on first start, with a version number.

Only this module names them and their columns. Everybody else builds statements from `state_tables`.
`checkpoint` runs them on connections of SQLAlchemy; `as_text` and `for_tasks` make text for those
who have a connection of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    BOOLEAN,
    Column,
    MetaData,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    case,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.mysql import (
    BIGINT,
    DATETIME,
    DOUBLE,
    INTEGER,
    LONGBLOB,
    LONGTEXT,
    MEDIUMTEXT,
    VARBINARY,
    Insert,
    insert,
)
from sqlalchemy.sql.elements import ColumnElement, DQLDMLClauseElement

from storage_consumer.plan.finished_files import CHUNK, WIDTH
from storage_consumer.plan.table_state import TableState
from storage_consumer.rows.comparison import TableResult
from storage_consumer.rows.spec import TaskStatements

NOW = func.utc_timestamp(6)
"""The time by the target's clock, in UTC."""
STATE_VERSION = 6
"""Increased whenever a table changes its shape."""
MIGRATED = (2, 3, 4, 5)
"""Older versions that migrate by new tables and the columns of `StateTables.added`."""

IDENTITY = ("table_dir", "version", "checksum")
"""Columns that identify a schema file, and so a statement; see `DdlStep.identity`."""
EVERY_TABLE = ""
"""The key in ``table_writes`` of a note that holds for every table."""
QUARANTINE_VALUES = (
    *(
        "table_key",
        "digest",
        "schema_name",
        "table_name",
        "version",
        "commit_ts",
        "path",
        "row_in_file",
        "row_key",
    ),
    *("key_columns", "written_columns", "image", "line", "held_before", "reason", "error_number"),
)
"""The columns of a quarantined row that the writer fills in."""
# Keys may have 3,072 bytes, and a character takes up to four of them.
_PATH = 512
_STREAM = 700
_NAME = 255


class StateTables:
    """All state tables of one schema."""

    def __init__(self, schema: str) -> None:
        """Define the tables in the state schema called `schema`."""
        self.metadata = MetaData(schema=schema)
        self.version = self._table("version", _id("id"), _integer("version"))
        self.lease = self._table(
            "lease", _id("id"), _name("holder"), _tso("epoch"), _moment("expires_at")
        )
        # The feed's one row: its bucket, and how far all of it is.
        self.feed = self._table(
            "feed",
            _id("id"),
            _name("upstream", 2048),
            _tso("checkpoint"),
            _tso("checkpoint_running", server_default="0"),
            _tso("storage_checkpoint"),
            _tso("window_id"),
            _tso("floor", server_default="0"),
        )
        # One row per table: how far it is, and what stops it.
        self.tables = self._table(
            "table_progress",
            *_named("table_key"),
            _tso("checkpoint"),
            _word("state"),
            _flag("follows"),
            _text("error"),
        )
        self.files = self._table(
            "file_progress", _key("stream", _STREAM), _tso("done_upto"), _tso("left_out")
        )
        # One row per `CHUNK` consecutive numbers of a file sequence: a digest of each finished
        # file. As many as a chunk has numbers, of one width: a number's place is its remainder.
        self.digests = self._table(
            "file_digests",
            _key("stream", _STREAM),
            _number("chunk"),
            Column("digests", VARBINARY(CHUNK * WIDTH), nullable=False),
        )
        self.targets = self._table(
            "table_targets", _key("table_key"), _name("target_schema"), _name("target_table")
        )
        self.keys = self._table("table_keys", _key("table_key"), _long("unique_keys"))
        self.writes = self._table("table_writes", _key("table_key"), _tso("upto"))
        self.slots = self._table(
            "slots",
            _id("slot"),
            _tso("epoch"),
            _tso("window_id"),
            _name("attempt", 32),
            _flag("finished"),
        )
        self._define_tables()
        self._define_findings()

    def _define_tables(self) -> None:
        # One row per statement: what the file says, what ran, and its state.
        self.journal = self._table(
            "ddl_journal",
            *_identity(),
            _name("schema_name"),
            _name("table_name"),
            _word("state"),
            _long("query"),
            _long("statement"),
            _name("structure_before", 64),
            Column("structure_after", String(64), nullable=False, server_default=text("''")),
            _long("note"),
            Column("answer", MEDIUMTEXT),
            Column("seconds", DOUBLE(asdecimal=False)),
            _moment("started_at", nullable=True),
            _moment("finished_at", nullable=True),
        )
        # One row per statement that an operator decided on, valid until the journal is done or
        # skipped.
        self.decisions = self._table(
            "ddl_decision",
            *_identity(),
            _word("verb"),
            _long("statement"),
            _moment("decided_at"),
            _name("decided_by"),
        )
        # One row per table that lacked files, or that an operator copied; see `Copies`.
        self.copies = self._table(
            "table_copies",
            _key("table_key"),
            _tso("copy_from"),
            _long("absent"),
            _tso("copied_at", server_default="0"),
            Column("passed", MEDIUMTEXT),
            Column("listed", MEDIUMTEXT),
            _tso("listed_at", server_default="0"),
        )
        # One row per table: the operator's last decision; unseen while `obeyed_at` is NULL.
        self.table_decisions = self._table(
            "table_decision",
            _key("table_key"),
            _word("verb"),
            _tso("copy_as_of"),
            _name("to_schema"),
            _name("to_table"),
            _moment("decided_at"),
            _name("decided_by"),
            _moment("obeyed_at", nullable=True),
            Column("refusal", Text),
        )
        # One row per table with its last load; see `Load`.
        self.loads = self._table(
            "table_load",
            *_named("table_key"),
            _name("load_id", 64),
            _text("source"),
            _name("identity", 64),
            _tso("low"),
            _tso("high"),
            _word("phase"),
            _tso("done"),
            _tso("parts"),
            _tso("size"),
            _flag("is_view"),
            _flag("replaces"),
            _text("error"),
            _moment("requested_at"),
            _name("requested_by"),
            _moment("ended_at", nullable=True),
        )

    def _define_findings(self) -> None:
        # One row per schema file that was read: what it says of its table at its version.
        self.structures = self._table(
            "schema_history",
            *_identity(),
            _name("table_key", _PATH),
            _name("schema_name"),
            _name("table_name"),
            _integer("ddl_type"),
            _name("path", _STREAM),
            _long("query"),
            _long("columns"),
            _name("digest", 32),
            UniqueConstraint("table_key", "version", "digest", name="by_table"),
        )
        # One row per key whose last state the target refused.
        self.quarantine = self._table(
            "quarantine",
            _key("table_key"),
            Column("digest", String(64), primary_key=True),
            _name("schema_name"),
            _name("table_name"),
            _tso("version"),
            _tso("commit_ts"),
            _name("path", _STREAM),
            _tso("row_in_file"),
            _text("row_key"),
            _text("key_columns"),
            _long("written_columns"),
            Column("image", LONGTEXT, nullable=False),
            Column("line", LONGBLOB, nullable=False),
            Column("held_before", LONGTEXT),
            _text("reason"),
            _integer("error_number"),
            _moment("first_seen"),
            _moment("last_seen"),
            _moment("retry_asked_at", nullable=True),
            Column("retry_asked_by", String(_NAME)),
            Column("retry_answer", Text),
        )
        # One row per compared table: how far, at which commit-ts, and what was found.
        self.verified = self._table(
            "verify_results",
            *_named("table_key"),
            _word("outcome"),
            _tso("checkpoint"),
            _moment("compared_at"),
            _long("document"),
        )
        # The one row with what the writer last said of itself; and one row per minute: how far the
        # feed was, and what was done.
        self.report = self._table(
            "report", _id("id"), _tso("epoch"), _moment("written_at"), _long("document")
        )
        self.minutes = self._table(
            "report_minutes",
            _number("minute"),
            *map(
                _tso,
                (
                    "checkpoint",
                    "checkpoint_running",
                    "storage_checkpoint",
                    "row_changes",
                    "statements",
                ),
            ),
        )

    def added(self) -> Iterator[tuple[Table, Column[Any]]]:
        """Yield the columns that tables of an older version may lack; each has a default."""
        yield self.feed, self.feed.c.checkpoint_running
        yield self.feed, self.feed.c.floor
        for name in ("structure_after", "seconds", "answer"):
            yield self.journal, self.journal.c[name]
        yield self.files, self.files.c.left_out

    def removed(self) -> Iterator[tuple[Table, str]]:
        """Yield columns that older versions' tables may have and that are no longer written."""
        yield self.files, "tag"

    def standing(self) -> Select[Any]:
        """Query document and outcome of `verify`'s results by name, without dropped tables."""
        kept, progress = self.verified.c, self.tables.c
        gone = and_(progress.table_key == kept.table_key, progress.state == TableState.DROPPED)
        query = select(kept.document, kept.outcome).where(
            ~select(progress.table_key).where(gone).exists()
        )
        return query.order_by(kept.schema_name, kept.table_name)

    def for_tasks(self) -> TaskStatements:
        """Return what tasks run as text, so that executors need not load SQLAlchemy."""
        slots, progress = self.slots, self.tables
        of_slot, of_table = slots.c.slot == bindparam("of"), progress.c.table_key == bindparam("of")
        loads = self.loads
        of_load = loads.c.table_key == bindparam("of")
        # With `attempt` and `finished`, one locked read answers all that a transaction asks.
        fence = select(slots.c.epoch, slots.c.window_id, slots.c.attempt, slots.c.finished).where(
            of_slot
        )
        moved = insert(progress).values(
            table_key=bindparam("of"),
            schema_name=bindparam("in_schema"),
            table_name=bindparam("named"),
            checkpoint=bindparam("upto"),
            state=text(f"'{TableState.RUNNING}'"),
            follows=text("1"),
            error=text("''"),
        )
        kept, now = self.quarantine, func.utc_timestamp(text("6"))
        of_entries = kept.c.table_key == bindparam("of")
        row: dict[str, ColumnElement[Any]] = {name: bindparam(name) for name in QUARANTINE_VALUES}
        new = insert(kept).values(**row, first_seen=now, last_seen=now)
        # Assigned in this order, by what the entry held so far: the same row again keeps the image
        # that was found first.
        same = kept.c.commit_ts == new.inserted.commit_ts
        changed: dict[str, ColumnElement[Any]] = {
            "held_before": case((same, kept.c.held_before), else_=new.inserted.held_before)
        }
        changed |= {
            name: new.inserted[name]
            for name in QUARANTINE_VALUES
            if name not in ("table_key", "digest", "held_before")
        }
        # Updates compare nothing: the transaction has read and judged the row under a lock.
        return TaskStatements(
            lock_slot=_template(fence.with_for_update()),
            claim_slot=_template(update(slots).where(of_slot).values(attempt=bindparam("by"))),
            close_slot=_template(update(slots).where(of_slot).values(finished=text("1"))),
            lock_checkpoint=_template(
                select(progress.c.checkpoint).where(of_table).with_for_update()
            ),
            store_checkpoint=_template(moved.on_duplicate_key_update(checkpoint=bindparam("upto"))),
            lock_load=_template(select(loads.c.done).where(of_load).with_for_update()),
            store_load=_template(update(loads).where(of_load).values(done=bindparam("upto"))),
            open_entries=_template(select(kept.c.digest).where(of_entries)),
            lock_entries=_template(select(kept.c.digest).where(of_entries).with_for_update()),
            put_entry=_template(
                new.on_duplicate_key_update([*changed.items(), ("last_seen", now)])
            ),
            remove_entries=_template(delete(kept).where(of_entries))
            + f" AND {kept.c.digest.name} IN (%(digests)s)",
        )

    def _table(self, name: str, *columns: Column[Any] | UniqueConstraint) -> Table:
        # By bytes: keys are folded already, and paths that differ in case are different files.
        return Table(
            name,
            self.metadata,
            *columns,
            mysql_engine="InnoDB",
            mysql_charset="utf8mb4",
            mysql_collate="utf8mb4_bin",
        )


@cache
def state_tables(schema: str) -> StateTables:
    """Return the tables of the state schema called `schema`."""
    return StateTables(schema)


def as_text(statement: DQLDMLClauseElement) -> tuple[str, list[Any]]:
    """Return a statement with ``%s`` for each argument, as the driver takes it, and those."""
    made = statement.compile(dialect=mysql.dialect(), compile_kwargs={"render_postcompile": True})
    # In the order in which the text names them.
    return str(made), [made.params[name] for name in made.positiontup or ()]


def put(table: Table, values: Mapping[str, object]) -> Insert:
    """Store a row under its primary key; an existing row keeps columns not in `values`."""
    # The primary key is what the row is found by, so it never changes.
    changed = {name: value for name, value in values.items() if not table.c[name].primary_key}
    return insert(table).values(dict(values)).on_duplicate_key_update(changed)


def verify_row(table_key: str, result: TableResult) -> dict[str, object]:
    """Return how the result of a comparison is stored, by column."""
    return {
        "table_key": table_key,
        "schema_name": result.table.schema,
        "table_name": result.table.table,
        "outcome": str(result.outcome),
        "checkpoint": result.checkpoint,
        "compared_at": NOW,
        "document": json.dumps(result.document()),
    }


def same_statement(one: Table, other: Table) -> ColumnElement[bool]:
    """Return the condition that rows of two tables belong to one schema file and statement."""
    return and_(*(one.c[name] == other.c[name] for name in IDENTITY))


def _template(statement: DQLDMLClauseElement) -> str:
    """Return a statement with ``%(name)s`` parameters and each ``%`` of the schema doubled."""
    return str(statement.compile(dialect=mysql.dialect(paramstyle="pyformat")))


def _id(name: str) -> Column[Any]:
    return Column(name, INTEGER, primary_key=True, autoincrement=False)


def _key(name: str, size: int = _PATH) -> Column[Any]:
    return Column(name, String(size), primary_key=True)


def _named(key: str) -> tuple[Column[Any], ...]:
    """Return the columns that begin a row per table."""
    return _key(key), _name("schema_name"), _name("table_name")


def _name(name: str, size: int = _NAME) -> Column[Any]:
    return Column(name, String(size), nullable=False)


def _word(name: str) -> Column[Any]:
    return _name(name, 16)


def _text(name: str) -> Column[Any]:
    return Column(name, Text, nullable=False)


def _integer(name: str) -> Column[Any]:
    return Column(name, INTEGER, nullable=False)


def _number(name: str) -> Column[Any]:
    return Column(name, BIGINT(unsigned=True), primary_key=True, autoincrement=False)


def _long(name: str) -> Column[Any]:
    return Column(name, MEDIUMTEXT, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, DATETIME(fsp=6), nullable=nullable)


def _flag(name: str) -> Column[Any]:
    return Column(name, BOOLEAN, nullable=False)


def _tso(name: str, *, server_default: str | None = None) -> Column[Any]:
    default = text(server_default) if server_default else None
    return Column(name, BIGINT(unsigned=True), nullable=False, default=0, server_default=default)


def _identity() -> tuple[Column[Any], ...]:
    """Return the columns `IDENTITY`, as the primary key."""
    directory, *numbers = IDENTITY
    return (
        _key(directory),
        *map(_number, numbers),
    )
