"""The command `load`: which tables are loaded from a copy, and which an operator wants loaded."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

from tqdm import tqdm

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.checkpoint.tables import LoadRow
from storage_consumer.cli.decision_commands import answer_table
from storage_consumer.cli.endings import Answer, ExitCode, told
from storage_consumer.cli.screen import message, table, wrapped
from storage_consumer.cli.verbs import LoadFlags, TableFlags
from storage_consumer.clock import counted
from storage_consumer.config.commands import command
from storage_consumer.config.load import load_carried, load_source, with_time_zone
from storage_consumer.errors import ConfigError, TableError
from storage_consumer.model import TableName
from storage_consumer.operating.compared_source import NotComparable
from storage_consumer.operating.exporting import Exported, ExportWishes, exported, open_export_folder
from storage_consumer.operating.mending import STILL_DIFFERS, TableMending
from storage_consumer.operating.state_questions import meant_table, refuse_running, request_load
from storage_consumer.plan.loads import LoadPhase
from storage_consumer.plan.steps import key_of
from storage_consumer.plan.table_decisions import is_skipped
from storage_consumer.plan.table_state import TableState
from storage_consumer.plan.table_words import meant, table_flag
from storage_consumer.rows.compared_layout import Key
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time
from storage_consumer.watch.report import Phase
from storage_consumer.watch.status import load_progress
from storage_consumer.watch.wording import load_document

_OF_TABLES = ("pause", "resume")
"""Actions that are decisions about the table."""
_INDENT = " " * 4
_OBEYED_WITHIN, _LOOK_EVERY = 60.0, 0.5
"""Seconds for which a decision is waited for, and between two looks."""


def answer_load(own: LoadFlags, session: Session) -> Answer:
    """Return what was shown or stored.

    Raises `ConfigError` where the wish is not clear or cannot be fulfilled, and
    `TargetUnavailable`.
    """
    _check(own)
    # A copy that was made by hand, and a load that stands still, are decisions about the table.
    if own.at is not None or own.action in _OF_TABLES:
        if own.at is None:
            with session.state() as desk:
                load, downstream = _chosen(desk.loads.all(), own.table).load, desk.downstream
            # What is paused or resumed is a load, not the table at any time.
            if load.phase == LoadPhase.REQUESTED:
                withdrawal = command(f"load cancel {table_flag(load.name)}", downstream)
                raise ConfigError(f"the load of {load.name} has not begun. To withdraw it: {withdrawal}")
            if load.phase != LoadPhase.LOADING:
                raise ConfigError(
                    f"{load.name} is not being loaded: its last load is {load.phase}. To {own.action} the table itself: "
                    f"{command(f'table {own.action} {table_flag(load.name)}', downstream)}"
                )
        return _decided(own, "reload-done" if own.at is not None else own.action, session)
    if own.keys:
        return _rows_anew(own, own.keys, session)
    # Before the target is asked: what is wrong with a URI needs no server.
    source = with_time_zone(own.dump, own.dump_tz or "") if own.dump else ""
    exported = _exported(own, session) if own.source else None
    with session.state() as desk:
        if source:
            wish = request_load(desk, str(own.table), source, replaces=own.replace)
            name, lines = wish.name, list[str]()
            document: dict[str, object] = {"outcome": "stored", "table": str(name), "source": source}
            if exported is not None:
                lines += [f"{name}: a snapshot was lost, so a newer one was taken: {why}" for why in exported.lost]
                made = f"{exported.rows:,} rows in {exported.files:,} files"
                at = f"as of {exported.snapshot} ({tso_time(exported.snapshot)})"
                lines.append(f"{name}: exported {at}: {made}")
                document["exported"] = asdict(exported)
            how = ", in place of its rows in the target" if wish.replaces else ""
            lines.append(f"{name}: to be loaded from {source}{how}")
            lines.append(
                "a running consumer looks at the copy before its next round, a stopped one when it starts; `storage-consumer load` shows how far it is"
            )
            return told(own, document, lines)
        rows = desk.loads.all()
        if own.action != "cancel":
            return _listed(desk, own, rows)
        row = _chosen(rows, own.table)
        found = (desk.loads.withdraw(row.load.table_key) or row).load
    if found.phase == LoadPhase.REQUESTED:
        said = "the load was withdrawn before a consumer looked at it; the table is as it was"
        return told(own, {"outcome": "withdrawn", "table": str(found.name)}, [f"{found.name}: {said}"])
    if found.phase != LoadPhase.LOADING:
        raise ConfigError(f"the load of {found.name} is {found.phase}: there is nothing to cancel")
    # What was begun cannot be taken back: its table is left out.
    return _decided(own, "skip", session)


def _decided(own: LoadFlags, action: str, session: Session) -> Answer:
    return answer_table(TableFlags(action=action, table=(str(own.table),), at=own.at, json=own.json), session)


def _rows_anew(own: LoadFlags, keys: Sequence[Key], session: Session) -> Answer:
    """Write the rows with some keys as the source has them."""
    assert own.source
    target = session.target
    source = load_source(own.source, own.source_password_file, session.environ, target.settings)
    with session.state() as desk:
        name = meant_table(desk, str(own.table))
        mending = TableMending(
            target=target,
            source=source,
            state=desk,
            table_key=key_of(name),
            carried=load_carried(session.options, session.environ),
            wait=_OBEYED_WITHIN,
            stop=threading.Event(),
        )
        try:
            with closing(mending):
                done = mending.mend(keys)
        except (NotComparable, TableError) as fault:
            raise ConfigError(f"{name}: {fault}") from fault
    document = {
        "outcome": "written",
        "table": str(name),
        "as_of": done.as_of,
        "rows": done.rows,
        "equal": done.is_equal,
    }
    lines = [
        f"{name}: {counted(done.rows, 'row')} for {counted(len(keys), 'key')} as of {done.as_of} ({tso_time(done.as_of)})"
    ]
    later = STILL_DIFFERS if done.is_equal is False else "they are equal once the table's checkpoint has passed that"
    lines.append("both sides are equal there" if done.is_equal else later)
    return told(own, document, lines, ExitCode.DONE if done.is_equal else ExitCode.FAILED)


def _exported(own: LoadFlags, session: Session) -> Exported:
    """Export the table into --dump's folder with the bucket's credentials; raise as `exported`."""
    assert own.source and own.dump and own.table  # noqa: PT018 - checked
    with session.state() as desk:
        name = meant_table(desk, own.table)
        refuse_running(desk, next((row for row in desk.loads.all() if row.load.table_key == key_of(name)), None))
        _refuse_moving(desk, name)
    bucket = session.bucket
    source = load_source(own.source, own.source_password_file, session.environ, session.target.settings)
    folder = open_export_folder(own.dump, bucket)
    pace = {"workers": own.workers, "rows_per_second": own.rows_per_second}
    wishes = ExportWishes(**{name: value for name, value in pace.items() if value is not None})
    with tqdm(desc=str(name), unit=" rows", file=sys.stderr, disable=None, leave=False) as bar:
        return exported(source, name, folder, wishes, heard=bar.update)


def _refuse_moving(desk: StateStore, name: TableName) -> None:
    """Raise `ConfigError` if the table's changes are being applied, ahead of a new export.

    A pause that was typed just now is waited for as long as a process writes.
    """
    deadline = time.monotonic() + _OBEYED_WITHIN
    while True:
        found = next((row for row in desk.decisions.tables() if row.stored.table_key == key_of(name)), None)
        if found is None:
            return
        is_open = found.decision is not None and found.decision.verb == "pause" and not found.obeyed
        if not is_open or time.monotonic() > deadline or not desk.snapshot().writer:
            break
        time.sleep(_LOOK_EVERY)
    if is_open:
        raise ConfigError(
            f"{name} is to be paused, and no consumer has obeyed that yet: a running one does in its next round. Start one, with --once if it "
            "is to end, and then run this again"
        )
    stored = found.stored
    if stored.state in (TableState.RUNNING, TableState.WAITING) or is_skipped(stored.state, stored.error):
        goes_on = "is passed over" if stored.state == TableState.EXCLUDED else "goes on"
        raise ConfigError(
            f"{name} {goes_on}, so it would be ahead of the export by the time that is finished. First run: "
            f"{command(f'table pause {table_flag(name)}', desk.downstream)} -- the load ends the pause"
        )


def _check(own: LoadFlags) -> None:
    """Refuse options that do not go together."""
    if own.action and (own.dump or own.at is not None):
        raise ConfigError(f"`load {own.action}` takes neither --dump nor --at")
    if own.dump and own.at is not None:
        raise ConfigError(
            "--dump names a copy to be loaded, --at says as of when a copy is that you made yourself: give one of them"
        )
    for name in ("dump_tz", "replace"):
        if getattr(own, name) and not own.dump:
            raise ConfigError(f"--{name.replace('_', '-')} goes with --dump")
    if own.keys and (own.dump or own.at is not None or own.action or not (own.source and own.table)):
        raise ConfigError("--keys goes with --table and --source, and without --dump, --at and an action")
    for name in ("source", "source_password_file", "workers", "rows_per_second"):
        if getattr(own, name) is not None and not (own.source and (own.dump or own.keys)):
            needs = "--dump, the empty folder for the export" if name == "source" else "--source"
            raise ConfigError(f"--{name.replace('_', '-')} goes with {needs}")
    if not own.table and (own.action or own.dump or own.at is not None):
        raise ConfigError("`load` needs --table; without --dump and --at it lists the tables that are being loaded")


def _chosen(rows: Sequence[LoadRow], given: str | None) -> LoadRow:
    for row in meant(given or "", rows, lambda row: row.load.name):
        return row
    raise ConfigError(f"no load of {given} is known; `storage-consumer load --all` lists the last load of each table")


def _listed(desk: StateStore, own: LoadFlags, rows: Sequence[LoadRow]) -> Answer:
    """Return the loads that are asked for, or all that have not ended."""
    shown = [_chosen(rows, own.table)] if own.table else rows
    listed = [row for row in shown if own.all or own.table or row.load.is_pending]
    rate, report = None, None
    if any(row.load.phase == LoadPhase.LOADING for row in listed):
        report = desk.snapshot().reported
    # Between rounds, and while all loads are paused, it would be the rate of before.
    if report and report.phase == Phase.APPLYING:
        rate = report.rows_per_second
    lines, documents = list[str](), list[dict[str, object]]()
    for row in listed:
        load = row.load
        at = f"as of {load.as_of} ({tso_time(load.as_of)})" if load.as_of else ""
        lines += table([(str(load.name), str(load.phase), load_progress(load))], "  ")
        lines += wrapped(f"{load.source} {at}".rstrip(), _INDENT)
        lines += message(load.error, _INDENT) if load.error else []
        if row.waits_for:
            waits = f"waits for the statement with version {row.waits_for}, which may touch the table: see `storage-consumer ddl`"
            lines += message(waits, _INDENT)
        ended = f", ended at {row.ended_at} UTC" if row.ended_at else ""
        lines += wrapped(f"requested at {row.requested_at} UTC by {row.requested_by}{ended}", _INDENT)
        more = {"replaces": load.replaces, "requested_at": row.requested_at, "requested_by": row.requested_by}
        ends = {"waits_for": row.waits_for or None, "ended_at": row.ended_at or None}
        documents.append(load_document(load) | more | ends)
    lines = lines or ["no table is being loaded"]
    lines += [f"the consumer reads {rate:,.0f} rows/s, changes of other tables included"] if rate else []
    lines += [f"{len(shown) - len(listed):,} ended: add --all"] if len(shown) > len(listed) else []
    return told(own, {"loads": documents, "rows_per_second": rate}, lines)
