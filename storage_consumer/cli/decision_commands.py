"""The commands `ddl`, `table` and `quarantine`: what awaits an operator, and decisions on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from storage_consumer.checkpoint.findings import QuarantinedEntry
from storage_consumer.checkpoint.journal import JournalRow, StoredJournal
from storage_consumer.checkpoint.tables import TableRow
from storage_consumer.cli.endings import OBEYED, Answer, ExitCode, told
from storage_consumer.cli.screen import cut, message, table, wrapped
from storage_consumer.cli.verbs import DdlFlags, QuarantineFlags, TableFlags
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.driver.lease import user
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.copies import is_in_future
from storage_consumer.plan.table_decisions import TableDecision, is_skipped, refusal
from storage_consumer.plan.table_state import STOPPED, TableState
from storage_consumer.plan.table_words import is_rule, meant, named, selected, table_flag
from storage_consumer.ports import Decision
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time

_QUERY_COLUMNS = 300
"""Columns of a statement in a list on a terminal."""
_INDENT = " " * 4
_STATEMENT_PROMISES = {
    "done": "it counts as done; nothing is run",
    "skip": "it is not run, and its table goes on without it",
    "replace": "the given text is run in its place",
}


def answer_ddl(own: DdlFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` for a statement that does not exist, is already resolved, or is ambiguous;
    and `TargetUnavailable`.
    """
    if own.action == "list":
        if more := [
            f"--{name}" for name in ("version", "checksum", "sql") if getattr(own, name) is not None
        ]:
            raise ConfigError(
                f"{' and '.join(more)}: give one of the verbs `ddl done`, `ddl skip` or `ddl replace` too"
            )
    else:
        for name in ("table", "version"):
            if getattr(own, name) is None:
                raise ConfigError(
                    f"ddl {own.action} needs --{name}; `storage-consumer ddl` lists what waits"
                )
        # An empty text would mean to run nothing, for which `skip` is the word.
        if (own.action == "replace") != bool((own.sql or "").strip()):
            raise ConfigError("`ddl replace` needs --sql, the text to run; no other verb takes it")
    with session.state() as desk:
        if own.action == "list":
            rows = desk.journal.unresolved()
            rows = meant(own.table, rows, _name) if own.table else rows
            head = f"{len(rows)} not done yet:" if rows else "no statement waits"
            return told(
                own,
                {"waiting": [_statement_document(row) for row in rows]},
                [head, *map(_statement, rows)],
            )
        where = f"the DDL of {own.table} with version {own.version}"
        row = _chosen(desk.journal, own, where)
        # The same decision as before has been carried out: that is an answer, not an error.
        if row.resolved:
            return Answer(f"{where} is {row.state}, as was decided: {row.note}\n")
        decision = Decision(verb=own.action, statement=own.sql or "", decided_by=user())  # type: ignore[arg-type]  # checked
        outcome = desk.journal.decide(row, decision)
    # A consumer brought the statement to its end between the look and the decision.
    if outcome == "resolved":
        raise ConfigError(
            f"the DDL of {row.name} with version {row.version} was resolved in the meantime; nothing was changed"
        )
    lines = [
        f"{row.name}, version {row.version} ({tso_time(row.version)}): {cut(row.query, _QUERY_COLUMNS)}"
    ]
    if outcome == "same":
        lines.append(f"already decided: {own.action}, but not obeyed yet; nothing was changed")
    else:
        lines.append(f"decided: {own.action}; {_STATEMENT_PROMISES[own.action]}")
        if row.decision is not None:
            lines.append(
                f"this replaces the decision of {row.decision.decided_by}: {row.decision.verb}"
            )
    if row.state == "started":
        lines.append(
            "it was sent to the target and may still be running: if it succeeds, nothing is left to decide"
        )
    document = {
        "outcome": outcome,
        "decision": own.action,
        "sql": decision.statement,
    } | _statement_document(row)
    return told(own, document, [*lines, OBEYED])


def _name(row: JournalRow) -> TableName:
    return row.name


def _chosen(journal: StoredJournal, own: DdlFlags, where: str) -> JournalRow:
    """Return the one statement meant (`where`, in words), unresolved or so by this decision."""
    assert own.table is not None and own.version is not None  # noqa: PT018 - checked
    of_version = meant(own.table, journal.of_version(own.version), _name)
    # One version may have several statements of a table, such as those of a rename; the checksum in
    # the file's name differs.
    rows = [row for row in of_version if own.checksum in (None, row.identity.checksum)]
    if len(rows) > 1:
        raise ConfigError(
            f"there are several statements like {where}; choose one with --checksum:\n{_statements(rows)}"
        )
    if rows and not rows[0].resolved:
        return rows[0]
    if rows and rows[0].decision is not None and rows[0].decision.verb == own.action:
        return rows[0]
    waiting = journal.unresolved()
    names = [str(row.name) for row in waiting]
    why = (
        f"is {rows[0].state} already"
        if rows
        else "does not wait for a decision" + did_you_mean(own.table, names)
    )
    listed = f"what waits:\n{_statements(waiting)}" if waiting else "nothing waits for a decision"
    raise ConfigError(f"{where} {why}; {listed}")


def _statement(row: JournalRow) -> str:
    """Return one statement as a few lines."""
    lines = [f"  {table_flag(row.name)} --version {row.version} --checksum {row.identity.checksum}"]
    lines += wrapped(
        f"{tso_time(row.version)}  {row.state}  {cut(row.query or row.statement, _QUERY_COLUMNS)}",
        _INDENT,
    )
    if row.note:
        lines += message(row.note, _INDENT)
    if (decision := row.decision) is not None:
        lines += wrapped(
            f"decided at {decision.decided_at} UTC by {decision.decided_by}: {decision.verb}",
            _INDENT,
        )
    return "\n".join(lines)


def _statements(rows: Iterable[JournalRow]) -> str:
    return "\n".join(map(_statement, rows))


def _statement_document(row: JournalRow) -> dict[str, object]:
    decision = row.decision
    return {
        "table": str(row.name),
        "version": row.version,
        "time": tso_time(row.version),
        "checksum": row.identity.checksum,
        "state": row.state,
        "query": row.query,
        "statement": row.statement,
        "error": row.note,
        "decided": None
        if decision is None
        else {"verb": decision.verb, "sql": decision.statement, "by": decision.decided_by},
    }


_TABLE_PROMISES = {
    "pause": "it is paused, also across restarts, until `table resume` or `load` (one that was skipped: until `load`); the checkpoint stays with it",
    "skip": "it is left out, also across restarts: neither its rows nor its statements are applied, and the checkpoint goes on "
    "without it. A copy brings it back: `load`",
    "resume": "it is tried again from where it stopped",
    "accept-keys": "its unique keys in the target are taken as they are, and it is tried again",
    "moved": "its rows are expected there; give the route that leads to it",
    "reload-done": "it continues after the copy: rows and statements up to there are neither applied nor waited for",
}


def answer_table(own: TableFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` for an unknown table, or for a decision that the state of the only one that
    is named does not allow, and `TargetUnavailable`.
    """
    takes_all = own.action not in ("skip", "moved")
    if own.action != "list" and not (own.table or (own.all and takes_all)):
        needed = "--table, or --all" if takes_all else "--table"
        raise ConfigError(
            f"table {own.action} needs {needed}; `storage-consumer table` lists those that are halted or waiting"
        )
    if (own.action == "reload-done") != (own.at is not None):
        raise ConfigError(
            "`table reload-done` needs --at, the TSO of the copy; no other verb takes it"
        )
    if (own.action == "moved") != bool(own.to):
        raise ConfigError(
            "`table moved` needs --to, the table's name in the target; no other verb takes it"
        )
    if own.all and own.table:
        raise ConfigError("--all means all tables, so it does not go with --table")
    several = own.all or len(own.table) > 1 or any(map(is_rule, own.table))
    if own.action == "moved" and several:
        raise ConfigError("`table moved` takes one table")
    at = f" as of {own.at} ({tso_time(own.at)})" if own.at else ""
    lines, documents, refused = list[str](), list[dict[str, object]](), 0
    with session.state() as desk:
        rows = desk.decisions.tables()
        concerned = partial(_concerns, own.action)
        chosen = (
            [] if own.all else selected(own.table, rows, lambda row: row.stored.name, concerned)
        )
        if own.action == "list":
            return _list_of_tables(own, rows, chosen)
        # By the target's clock, since this machine's may be wrong; a TSO in the future would have
        # all rows until then left out.
        if own.at and is_in_future(own.at, desk.decisions.now_ms()):
            raise ConfigError(
                f"--at {own.at} ({tso_time(own.at)}) is in the future; give the TSO of the copy"
            )
        for row in filter(concerned, rows) if own.all else chosen:
            decision = TableDecision(
                table_key=row.stored.table_key,
                verb=own.action,  # type: ignore[arg-type]  # checked
                at=own.at or 0,
                to=named("--to", own.to, whole=True) if own.to else None,
                decided_by=user(),
            )
            # For an immediate answer only: the consumer judges again, under its lock, when it
            # obeys.
            why = refusal(desk.decisions.judged(row.stored), decision)
            if why and not several:
                raise ConfigError(why)
            if why:
                outcome, said, refused = "refused", f"refused: {why}", refused + 1
            elif (outcome := desk.decisions.decide_on(row, decision)) == "same":
                said = f"already decided: {own.action}{at}, but not obeyed yet; nothing was changed"
            else:
                said = f"decided: {own.action}{at}; {_TABLE_PROMISES[own.action]}"
            lines.append(f"{row.stored.name}: {said}")
            document = {
                "outcome": outcome,
                "decision": own.action,
                "at": own.at or 0,
                "table": str(row.stored.name),
            }
            documents.append(document | ({"refusal": why} if several else {}))
    lines += (
        [OBEYED]
        if len(documents) > refused
        else []
        if refused
        else [f"there is no table to {own.action}"]
    )
    code = ExitCode.TABLES_STOPPED if refused else ExitCode.DONE
    return told(own, {"tables": documents} if several else documents[0], lines, code)


def _concerns(action: str, row: TableRow) -> bool:
    """Return whether a decision that names no table by its full name is also about this one."""
    if action == "list":
        return True
    if _is_left_out(row) or row.shown == TableState.DROPPED:
        return False
    if action == "skip":
        return bool(row.stored.name.table)
    # What was decided last counts, though no consumer has seen it.
    pending = row.decision.verb if row.decision is not None and not row.obeyed else ""
    stopped = row.shown in STOPPED
    return (
        not stopped or pending not in ("", "pause")
        if action == "pause"
        else stopped or pending == "pause"
    )


def _list_of_tables(own: TableFlags, rows: Sequence[TableRow], meant: Sequence[TableRow]) -> Answer:
    """Return the tables that are meant, or those that an operator may want to see."""
    shown, lines, documents = list(meant), list[str](), list[dict[str, object]]()
    if not meant:
        for row in rows:
            # It is stopped, or a decision on it waits or failed, until another one replaces that.
            waits = row.decision is not None and (not row.obeyed or bool(row.refusal))
            goes_on = _is_left_out(row) or row.shown in (TableState.RUNNING, TableState.DROPPED)
            shown += [row] if own.all or waits or not goes_on else []
    for row in shown:
        stored, decision = row.stored, row.decision
        error = stored.error or row.waits
        at = f"checkpoint {row.reached} ({tso_time(row.reached)})"
        lines += table([(str(stored.name), row.shown, at)], "  ")
        lines += message(error, _INDENT) if error else []
        if copy_from := stored.copies.copy_from:
            lines += wrapped(
                f"the copy has to be as of {copy_from} ({tso_time(copy_from)}) or later", _INDENT
            )
        decided: dict[str, object] | None = None
        if decision is not None:
            at = f" --at {decision.at}" if decision.at else ""
            end = "obeyed" if row.obeyed else "no consumer has seen it yet"
            end = f"not obeyed: {row.refusal}" if row.refusal else end
            said = f"decided at {decision.decided_at} UTC by {decision.decided_by}: {decision.verb}{at}; {end}"
            lines += wrapped(said, _INDENT)
            decided = {"verb": decision.verb, "at": decision.at, "by": decision.decided_by}
            decided |= {"obeyed": row.obeyed, "refusal": row.refusal}
        documents.append(
            {
                "table": str(stored.name),
                "state": row.shown,
                "checkpoint": row.reached,
                "error": error,
                "copy_from": stored.copies.copy_from,
                "copied_at": stored.copies.copied_at,
                "decided": decided,
            }
        )
    left_out = 0 if own.all or meant else sum(map(_is_left_out, rows))
    lines = lines or ["no table is halted, paused or waiting"]
    lines += [f"{left_out:,} skipped or left out by the filter: add --all"] if left_out else []
    return told(own, {"tables": documents}, lines)


def _is_left_out(row: TableRow) -> bool:
    """Return whether the table is left out on purpose; one that lacks rows has an error."""
    stored = row.stored
    return stored.state == TableState.EXCLUDED and (
        not stored.error or is_skipped(stored.state, stored.error)
    )


_ROW_FIELDS = (
    *(
        "key",
        "commit_ts",
        "path",
        "row",
        "version",
        "reason",
        "error_number",
        "image",
        "held_before",
    ),
    *("first_seen", "last_seen", "retry_asked_by", "retry_answer"),
)
"""Fields of a row that a row_document has."""


def answer_quarantine(own: QuarantineFlags, session: Session) -> Answer:
    """Return what was shown or decided.

    Raises `ConfigError` where no row is meant or the wish is not clear, and `TargetUnavailable`.
    """
    if own.action != "list" and not own.table and not own.all:
        raise ConfigError(
            f"quarantine {own.action} needs --table, or --all for the rows of all tables"
        )
    if own.all and own.table:
        raise ConfigError("--all means the rows of all tables, so it does not go with --table")
    if own.key and not own.table:
        raise ConfigError("--key goes with --table")
    if own.action == "drop" and not own.yes:
        raise ConfigError(
            "`quarantine drop` removes rows for good, and their tables stay different from the source: add --yes if that is wanted"
        )
    with session.state() as desk:
        rows = desk.quarantine.all()
        chosen = meant(own.table, rows, lambda entry: entry.table) if own.table else rows
        chosen = [entry for entry in chosen if own.key in (None, entry.key)]
        if own.action == "list":
            lines: list[str] = []
            for entry in chosen:
                before = (
                    "had an earlier row of this key"
                    if entry.held_before is not None
                    else "had no row of this key"
                )
                at = f"commit-ts {entry.commit_ts} ({tso_time(entry.commit_ts)})"
                lines += [f"  {entry.table}  {entry.key}  {at}", f"    {entry.reason}"]
                place = f"row {entry.row} of {entry.path}; the target {before}"
                lines.append(f"    {place}; first refused at {entry.first_seen} UTC")
                asked = (
                    f"    to be tried again, by {entry.retry_asked_by}; no consumer has done it yet"
                )
                lines += [asked] if entry.retry_asked_by else []
                lines += [f"    last retry: {entry.retry_answer}"] if entry.retry_answer else []
            lines = lines or ["the quarantine is empty"]
            return told(own, {"rows": [row_document(entry) for entry in chosen]}, lines)
        if not chosen:
            raise ConfigError(
                "no such row is in the quarantine; `storage-consumer quarantine` lists those that are"
            )
        if own.action == "retry":
            desk.quarantine.retry(chosen, user())
            said = "to be tried again: a running consumer does it in its next round, a stopped one when it starts"
        else:
            desk.quarantine.drop(chosen)
            tables = ", ".join(sorted({str(entry.table) for entry in chosen}))
            said = f"dropped from the quarantine; the target lacks them in {tables} until the source changes them"
    count = f"{len(chosen):,} row{'' if len(chosen) == 1 else 's'}"
    return told(own, {"decision": own.action, "rows": len(chosen)}, [f"{count} {said}"])


def row_document(entry: QuarantinedEntry) -> dict[str, object]:
    """Return a row as JSON takes it; the keys are part of the program's interface."""
    return {"table": str(entry.table), **{name: getattr(entry, name) for name in _ROW_FIELDS}}
