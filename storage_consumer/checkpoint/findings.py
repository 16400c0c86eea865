"""What is found beside the work: the writer's report, refused rows, doubtful tables.

Nothing that a later start needs is in a report. It is stored without the lease's lock, so that it
never waits for a round and no round for it; the epoch keeps an older writer from replacing the
report of a newer one. Tasks put rows into the quarantine; see `target.bucket_writer`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.transactions import Stored, name_in, record, seconds_between
from storage_consumer.model import TableName
from storage_consumer.plan.ddl_backlog import TableEntries, closed_by, gone_by
from storage_consumer.plan.journal_entry import DONE, SKIPPED, STARTED
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.steps import OF_SKIPPED, DdlStep, key_of
from storage_consumer.plan.table_decisions import may_touch
from storage_consumer.plan.table_state import TableState
from storage_consumer.rows.comparison import (
    TableLook,
    TableResult,
    VerifyOutcome,
    counting,
    renamed,
    result_from,
    says_more,
)
from storage_consumer.target.source_reading import Reading
from storage_consumer.target.state_tables import (
    EVERY_TABLE,
    NOW,
    StateTables,
    as_text,
    put,
    same_statement,
    state_tables,
    verify_row,
)
from storage_consumer.watch.report import Minute, Report

KEPT_MINUTES = 24 * 60
"""Minutes for which the course of a feed is kept."""


class StoredReports(Stored):
    """The reports of one feed."""

    def save(self, document: str, minute: Minute) -> dict[str, int]:
        """Store the lease owner's report and this minute's progress; do nothing without a lease.

        Return how many tables `verify` has found in each outcome.
        """
        report, epoch, minutes = self._tables.report, self._transactions.epoch, self._tables.minutes
        if not epoch:
            return {}
        found = self._tables.standing().order_by(None).subquery().c.outcome
        with self._shared("storing a report") as connection:
            # Read without a lock, which would hold up the owner's own transactions.
            if connection.execute(select(self._tables.lease.c.epoch)).scalar() != epoch:
                return {}
            new = {"epoch": epoch, "written_at": NOW, "document": document}
            done = connection.execute(update(report).where(report.c.epoch <= epoch).values(**new))
            if not done.rowcount:
                # The first report of all; or a newer owner's stands there, which IGNORE keeps.
                connection.execute(insert(report).prefix_with("IGNORE").values(id=1, **new))
            connection.execute(put(minutes, asdict(minute)))
            connection.execute(
                delete(minutes).where(minutes.c.minute < minute.minute - KEPT_MINUTES)
            )
            counts = connection.execute(select(found, func.count()).group_by(found))
            return {str(outcome): int(count) for outcome, count in counts}

    def last(self) -> tuple[Report | None, float]:
        """Return a writer's last report and its age in seconds; older programs leave none."""
        report = self._tables.report
        if not self._transactions.has(report):
            return None, 0.0
        query = select(report.c.document, seconds_between("written_at", "UTC_TIMESTAMP(6)"))
        for row in self._read(query.order_by(report.c.epoch.desc())):
            return Report.from_json(row[0]), float(row[1])
        return None, 0.0

    def minutes(self, most: int) -> tuple[Minute, ...]:
        """Return the feed's last minutes, oldest first; minutes without a writer have none."""
        kept = self._tables.minutes
        if not self._transactions.has(kept):
            return ()
        rows = self._read(select(kept).order_by(kept.c.minute.desc()).limit(most))
        return tuple(Minute(**row._asdict()) for row in reversed(rows))


_READING = "reading the quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedEntry:
    """One quarantined row."""

    table_key: str
    digest: str
    table: TableName
    """As the target spells it."""
    key: str
    """Columns and values of its key, for people."""
    commit_ts: int
    """Of the row, or the TSO of the copy that it is of."""
    path: str
    row: int
    """Its number in that file."""
    version: int
    """Of the structure of the row; 0 for a row of a copy, which has that as of the copy."""
    reason: str
    error_number: int
    image: Mapping[str, str | None]
    """The row, by column; bytes in hexadecimal digits."""
    held_before: Mapping[str, str | None] | None
    """What the target held of the key when the row was refused; None for nothing."""
    first_seen: str
    """By the target's clock, in UTC."""
    last_seen: str
    retry_asked_by: str
    """Who wants it to be tried again; empty for nobody, or if that was done."""
    retry_answer: str
    """What became of the last retry."""
    key_columns: str
    """How its key is compared; see `row_keys.key_signature`."""
    written_columns: str
    """JSON: name, kind and type of each column of the line."""
    line: bytes


class StoredQuarantine(Stored):
    """The quarantine of one feed."""

    def entries(self) -> Mapping[str, TableEntries]:
        """Return what the quarantine holds, by table key."""
        kept = self._tables.quarantine.c
        query = select(kept.table_key, kept.key_columns, func.count()).group_by(
            kept.table_key, kept.key_columns
        )
        found: dict[str, TableEntries] = {}
        for key, signature, count in self._read(query, _READING):
            old = found.get(key, TableEntries(count=0, signatures=frozenset()))
            found[key] = TableEntries(
                count=old.count + count, signatures=old.signatures | {signature}
            )
        return found

    def asked(self) -> list[QuarantinedEntry]:
        """Return the rows that are to be tried again, the oldest first."""
        kept = self._tables.quarantine.c
        return self._rows(kept.retry_asked_at.is_not(None), kept.commit_ts, kept.digest)

    def stays(
        self, entry: QuarantinedEntry, answer: str, *, reason: str = "", number: int = 0
    ) -> None:
        """Note why a retried row stays; `reason` and `number`: the target's answer, if any."""
        kept = self._tables.quarantine
        said = {"reason": reason, "error_number": number} if reason else {}
        with self._owned("storing the result of a retry") as connection:
            connection.execute(
                update(kept)
                .where(self._is(entry))
                .values(retry_asked_at=None, retry_answer=answer, last_seen=NOW, **said)
            )

    def _is(self, entry: QuarantinedEntry) -> ColumnElement[bool]:
        kept = self._tables.quarantine.c
        return (kept.table_key == entry.table_key) & (kept.digest == entry.digest)

    # what an operator sees and decides

    def all(self) -> list[QuarantinedEntry]:
        """Return all rows, by table and commit-ts."""
        kept = self._tables.quarantine.c
        return self._rows(true(), kept.schema_name, kept.table_name, kept.commit_ts, kept.digest)

    def _rows(
        self, where: ColumnElement[bool], *order: ColumnElement[Any]
    ) -> list[QuarantinedEntry]:
        query = select(self._tables.quarantine).where(where).order_by(*order)
        return [
            record(
                QuarantinedEntry,
                each,
                table=name_in(each),
                key=each.row_key,
                row=each.row_in_file,
                image=json.loads(each.image),
                held_before=None if each.held_before is None else json.loads(each.held_before),
                first_seen=str(each.first_seen),
                last_seen=str(each.last_seen),
                retry_asked_by=each.retry_asked_by if each.retry_asked_at else "",
                retry_answer=each.retry_answer or "",
            )
            for each in self._read(query, _READING)
        ]

    def counts(self) -> Mapping[str, int]:
        """Return table key → number of rows; a state of an older version has none."""
        if not self._transactions.has(self._tables.quarantine):
            return {}
        # By the short column alone: a group by a long one takes room on a disk that may be full
        # when `status` asks.
        kept = self._tables.quarantine.c
        rows = self._read(select(kept.table_key, func.count()).group_by(kept.table_key))
        return {key: int(count) for key, count in rows}

    def retry(self, entries: Iterable[QuarantinedEntry], by: str) -> None:
        """Note that rows are to be tried again."""
        values = {"retry_asked_at": NOW, "retry_asked_by": by, "retry_answer": None}
        with self._shared("storing a decision") as connection:
            for entry in entries:
                connection.execute(
                    update(self._tables.quarantine).where(self._is(entry)).values(**values)
                )

    def drop(self, entries: Iterable[QuarantinedEntry]) -> None:
        """Give up rows, unless a newer state of their keys was refused since they were read."""
        kept = self._tables.quarantine
        with self._shared("storing a decision") as connection:
            for entry in entries:
                same = kept.c.commit_ts == entry.commit_ts
                connection.execute(delete(kept).where(self._is(entry), same))


def close_entries(connection: Connection, tables: StateTables, step: DdlStep, *, upto: int) -> None:
    """Remove entries of tables emptied by a statement, in its transaction.

    `upto`: their highest commit-ts.

    Later rows are none of those, though the statement may be recorded after they were refused.
    """
    kept = tables.quarantine.c
    table, database = closed_by(step)
    gone: list[ColumnElement[bool]] = [kept.table_key == table] if table else []
    # Not LIKE: a name may hold a wildcard.
    gone += [func.left(kept.table_key, len(database)) == database] if database else []
    if gone:
        connection.execute(delete(tables.quarantine).where(or_(*gone), kept.commit_ts <= upto))


def close_copied(connection: Connection, tables: StateTables, table_key: str, at: int) -> None:
    """Remove entries that a table's copy as of a TSO holds, and earlier comparison results."""
    kept, compared = tables.quarantine, tables.verified
    connection.execute(
        delete(kept).where(and_(kept.c.table_key == table_key, kept.c.commit_ts <= at))
    )
    connection.execute(delete(compared).where(compared.c.table_key == table_key))
    journal = tables.journal.c
    mine = and_(journal.table_dir == OF_SKIPPED + table_key, journal.version <= at)
    connection.execute(delete(tables.journal).where(mine))


_BEFORE = "before"
"""In the document of a comparison that is not finished: that of what was known to be different
before.
"""


class StoredVerified(Stored):
    """The results of one feed."""

    def doubt(self, table_key: str, document: Mapping[str, object]) -> None:
        """Store that a table may differ from the source, until it is compared or copied."""
        with self._owned("storing that a table may not be equal") as connection:
            kept = self._tables.verified
            query = select(kept.c.document).where(kept.c.table_key == table_key)
            found, result = (
                connection.execute(query.with_for_update()).scalar(),
                result_from(document),
            )
            known = json.loads(found) if found is not None else {}
            before = result_from(_told(known)) if known else None
            if before is None or says_more(result, before):
                connection.execute(put(kept, verify_row(table_key, result)))
            elif _BEFORE in known:
                # The comparison that goes on began before this, so that it ends nothing.
                connection.execute(put(kept, verify_row(table_key, before)))

    # what a comparison asks and finds

    def all(self) -> list[TableResult]:
        """Return the last result of each table, by name."""
        return [result_from(document) for document, _ in self._results()]

    def standing(self) -> list[TableResult]:
        """Return the same where an unfinished comparison's findings do not count yet.

        What was known before it counts.
        """
        return [
            replace(result_from(_told(document)), outcome=outcome)
            for document, outcome in self._results()
        ]

    def _results(self) -> list[tuple[dict[str, Any], VerifyOutcome]]:
        """Return the last result of each table, and the outcome that counts, by name."""
        if not self._transactions.has(self._tables.verified):
            return []
        found = self._read(self._tables.standing())
        return [(json.loads(text), VerifyOutcome(outcome)) for text, outcome in found]

    def put(self, table_key: str, result: TableResult) -> None:
        """Store a table's result in place of its last one, unless it is no news: `counting`."""
        kept = self._tables.verified
        query = select(kept.c.outcome, kept.c.document).where(kept.c.table_key == table_key)
        # A consumer may store a doubt at the same time.
        with self._shared("storing a decision") as connection:
            found = connection.execute(query.with_for_update()).first()
            before, known = (
                (VerifyOutcome(found.outcome), json.loads(found.document)) if found else (None, {})
            )
            outcome = counting(result, before, known.get("run", ""))
            if outcome is None:
                return
            row = verify_row(table_key, result)
            if outcome is not result.outcome:
                row |= {
                    "outcome": outcome,
                    "document": json.dumps(result.document() | {_BEFORE: _told(known)}),
                }
            connection.execute(put(kept, row))

    def next_statement(self, table: TableName, low: int, high: int) -> int:
        """Return the first statement's version from `low` to `high` that may touch a table.

        Both are inclusive; 0 for none.

        At `low` only one that is neither done nor skipped: the table has not passed it.
        """
        tables = self._tables
        kept, journal = tables.structures.c, tables.journal.c
        ended = and_(
            same_statement(tables.structures, tables.journal), journal.state.in_((DONE, SKIPPED))
        )
        query = (
            select(kept.version, kept.query, kept.schema_name, kept.table_name, journal.state)
            .select_from(tables.structures.outerjoin(tables.journal, ended))
            .where(kept.version.between(low, high), kept.query != "")
            .order_by(kept.version)
        )
        for row in self._read(query):
            if (row.version > low or row.state is None) and may_touch(
                row.query, name_in(row), table
            ):
                return int(row.version)
        return 0

    def now(self, table_key: str) -> TableLook | None:
        """Return what the state says of a table now."""
        return _looked(self._tables, table_key, self._read)


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The state as a snapshot of the target shows it."""

    reading: Reading
    schema: str

    def look(self, table_key: str) -> TableLook | None:
        """Return what the snapshot says of a table; None if the state does not know it."""
        return _looked(state_tables(self.schema), table_key, self._rows)

    def _rows(self, statement: Any) -> list[Any]:
        names = statement.selected_columns.keys()
        sql, arguments = as_text(statement)
        found = self.reading.rows(sql if arguments else sql.replace("%%", "%"), arguments)
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in found]


def lease_lock(schema: str) -> str:
    """Return the query that locks the lease until its transaction ends.

    The owner opens no window and moves no checkpoint meanwhile.
    """
    return as_text(select(state_tables(schema).lease.c.epoch).with_for_update())[0]


def _told(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a table's document: what was known before an unfinished comparison, if valid."""
    return dict(document.get(_BEFORE, document))


def take_along(connection: Connection, tables: StateTables, step: DdlStep) -> None:
    """Move comparison results to a statement's new name, in its transaction.

    Forget them with a table that is dropped.
    """
    kept = tables.verified
    table, database = gone_by(step)
    gone = [kept.c.table_key == table] if table else []
    gone += [func.left(kept.c.table_key, len(database)) == database] if database else []
    if not gone:
        return
    known = connection.execute(select(kept.c.document, kept.c.outcome).where(or_(*gone))).all()
    rename = step.origin.ddl.rename
    gone += [kept.c.table_key == key_of(rename.new)] if rename is not None else []
    connection.execute(delete(kept).where(or_(*gone)))
    if rename is not None:
        for document, outcome in known:
            moved = renamed(result_from(_told(json.loads(document))), rename.new)
            connection.execute(
                put(kept, {**verify_row(key_of(rename.new), moved), "outcome": outcome})
            )


def _looked(
    tables: StateTables, table_key: str, rows: Callable[[Any], Sequence[Any]]
) -> TableLook | None:
    feed, lease, progress, places = tables.feed.c, tables.lease.c, tables.tables.c, tables.targets.c
    journal, notes, kept, loads = (
        tables.journal.c,
        tables.writes.c,
        tables.structures.c,
        tables.loads.c,
    )
    is_loading = (loads.table_key == table_key) & (loads.phase == LoadPhase.LOADING)
    asked = {
        "writer": select((lease.holder != "") & (lease.expires_at >= NOW)),
        "noted": select(func.max(notes.upto)).where(notes.table_key.in_((table_key, EVERY_TABLE))),
        "statements": select(func.count()).select_from(tables.journal),
        "started": select(func.max(journal.started_at)),
        "finished": select(func.max(journal.finished_at)),
        "quarantined": select(func.count()).where(tables.quarantine.c.table_key == table_key),
        "loading": select(func.count()).where(is_loading),
    }
    query = select(
        *(
            progress.schema_name,
            progress.table_name,
            progress.state,
            progress.checkpoint,
            progress.follows,
        ),
        *(progress.error, places.target_schema, places.target_table, feed.checkpoint_running),
        *(each.scalar_subquery().label(name) for name, each in asked.items()),
    ).select_from(
        tables.feed.outerjoin(
            tables.tables, (progress.table_key == table_key) & (feed.id == 1)
        ).outerjoin(tables.targets, places.table_key == progress.table_key)
    )
    found = rows(query)
    if not found:
        return None
    row, is_new = found[0], found[0].state is None
    # Nothing has run yet on a table that only a schema file names, and it follows the feed.
    named = (
        rows(select(kept.schema_name, kept.table_name).where(kept.table_key == table_key).limit(1))
        if is_new
        else found
    )
    if not named:
        return None
    name = name_in(named[0])
    target = (
        name
        if row.target_schema is None
        else TableName(schema=row.target_schema, table=row.target_table)
    )
    return TableLook(
        table_key=table_key,
        table=name,
        target=target,
        state=TableState.RUNNING if is_new else row.state,
        checkpoint=max(row.checkpoint or 0, row.checkpoint_running)
        if is_new or row.follows
        else row.checkpoint,
        noted=row.noted or 0,
        statement=last_that_may_touch(rows(begun_statements(tables, given_up=False)), name),
        statements=f"{row.statements} {row.started} {row.finished}",
        quarantined=row.quarantined,
        is_loaded=not row.loading,
        writer=bool(row.writer),
        error=row.error or "",
    )


def begun_statements(tables: StateTables, *, given_up: bool) -> Select[Any]:
    """Query started statements without a known end; see `last_that_may_touch`.

    With `given_up`, leave out those whose outcome an operator has stated.
    """
    journal, said = tables.journal.c, tables.decisions.c
    begun = select(journal.version, journal.query, journal.schema_name, journal.table_name).where(
        journal.state == STARTED
    )
    if given_up:
        same = same_statement(tables.decisions, tables.journal)
        begun = begun.where(~exists().where(same, said.verb.in_(("done", "skip"))))
    return begun


def last_that_may_touch(begun: Iterable[Any], table: TableName) -> int:
    """Return the highest version of those statements that may touch a table, 0 for none."""
    return max(
        (row.version for row in begun if may_touch(row.query, name_in(row), table)), default=0
    )
