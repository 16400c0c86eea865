"""What the facts of the state mean. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from storage_consumer.amounts import some_of
from storage_consumer.clock import span
from storage_consumer.config.commands import PROGRAM
from storage_consumer.doctor.findings import Outcome, fail, not_looked_at, ok, warn
from storage_consumer.doctor.state_look import StateFacts
from storage_consumer.downstream.state_tables import MIGRATED, STATE_VERSION
from storage_consumer.driver.lease_holder import readable
from storage_consumer.errors import ConfigError
from storage_consumer.plan.journal import FAILED, STARTED
from storage_consumer.plan.table_state import TableState
from storage_consumer.poll.same_feed import refuse_ahead_of_clock

_SHOWN = 3
"""Names in a line."""
_RUN = f"{PROGRAM} run"
_FIRST = "there is no state: the first run creates it"


def version(facts: StateFacts) -> Outcome:
    """Judge whether this program can go on with the state."""
    if facts.version is None:
        return ok(f"{_FIRST} ({facts.schema})")
    if facts.version == STATE_VERSION:
        return ok(f"the state schema {facts.schema} has version {facts.version}")
    if facts.version in MIGRATED:
        return warn(
            f"the state schema {facts.schema} has version {facts.version}, and the next run migrates it to {STATE_VERSION}",
            "Back it up first: an older program cannot use it afterwards.",
        )
    return fail(
        f"the state schema {facts.schema} has version {facts.version}, and this program writes version {STATE_VERSION}",
        "Use the program that wrote it, or give this one its own state schema (--state-schema).",
    )


def bucket(facts: StateFacts, upstream: str = "", uri: str = "") -> Outcome:
    """Judge whose state it is; `upstream`: the bucket as the state remembers it, empty if none was given; `uri`: how it is reached."""
    if facts.feed is None:
        return _unread(facts)
    if not upstream or facts.feed.upstream == upstream:
        return ok(f"it belongs to {facts.feed.upstream}")
    rebind = f"storage-consumer rebind --upstream-uri {shlex.quote(uri or upstream)} {_flags(facts)}"
    return fail(
        f"it belongs to {facts.feed.upstream}, not to {upstream}",
        f"Give this bucket a state of its own (--state-schema). If the files were copied or moved there: {rebind}",
    )


def lease(facts: StateFacts, run: str = _RUN) -> Outcome:
    """Judge who writes; `run`: the command that starts a consumer."""
    feed = facts.feed
    if feed is None:
        return _unread(facts)
    if feed.is_held and facts.writer_is_gone:
        return ok(f"{readable(feed.holder)} holds the lease, and is gone: the next run takes it at once")
    if feed.is_held:
        return ok(f"{readable(feed.holder)} writes now; another process would stand by")
    if feed.holder:
        return warn(
            f"{readable(feed.holder)} was the last writer, and ended without releasing its lease",
            f"If nobody ended it on purpose, see why in its log, and storage-consumer status {_flags(facts)} -- then start {run}",
        )
    return ok("nobody holds the lease")


def tables(facts: StateFacts) -> Outcome:
    """Judge which tables stand still."""
    if facts.status is None:
        return _unread(facts)
    paused = [str(each.name) for each in facts.status.tables if each.state == TableState.PAUSED]
    halted = [str(each.name) for each in facts.status.tables if each.state in (TableState.HALTED, TableState.LOST)]
    command = f"See the reason and the next command: storage-consumer status {_flags(facts)}"
    if halted:
        return fail(f"halted: {some_of(halted, _SHOWN)}", command)
    unequal = [str(each.name) for each in facts.status.snapshot.tables if each.quarantined]
    if unequal:
        return warn(f"not equal to the source, since rows are in the quarantine: {some_of(unequal, _SHOWN)}", command)
    if paused:
        return warn(f"paused by an operator: {some_of(paused, _SHOWN)}", command)
    return ok("no table is halted or paused, and the quarantine is empty")


def statements(facts: StateFacts) -> Outcome:
    """Judge statements whose end is not known, or that failed."""
    if facts.status is None:
        return _unread(facts)
    found = facts.status.snapshot.statements
    failed = [f"{each.name} ({each.state})" for each in found if each.state == FAILED]
    cut = [
        f"{each.name} ({each.state})" for each in found if each.state == STARTED and not facts.status.snapshot.writer
    ]
    if failed:
        return fail(
            f"statements wait for a decision: {some_of(failed, _SHOWN)}",
            f"Decide: storage-consumer ddl list {_flags(facts)}",
        )
    if cut:
        return warn(f"started by a writer that is gone: {some_of(cut, _SHOWN)}", f"The next run settles them; to see them: storage-consumer ddl list {_flags(facts)}")  # fmt: skip
    return ok("no statement failed, or was cut off")


def decisions(facts: StateFacts, run: str = _RUN) -> Outcome:
    """Judge decisions that nobody has obeyed; `run`: as for `lease`."""
    if facts.status is None:
        return _unread(facts)
    waiting = [f"{each.name} ({each.decision})" for each in facts.status.tables if each.decision]
    if waiting:
        return warn(f"decisions wait, or were refused: {some_of(waiting, _SHOWN)}", f"A consumer obeys in its next round: start {run}")  # fmt: skip
    return ok("no decision of an operator waits")


def checkpoint(facts: StateFacts) -> Outcome:
    """Judge how far the state is."""
    if facts.feed is None:
        return _unread(facts)
    try:
        refuse_ahead_of_clock(max(facts.feed.checkpoint, facts.feed.storage_checkpoint), facts.schema, facts.now)
    except ConfigError as error:
        return fail(str(error))
    status = facts.status
    if status is None or status.lag is None:
        return ok("no round has ended yet")
    return ok(f"everything up to {span(status.lag)} ago is applied")


def _unread(facts: StateFacts) -> Outcome:
    if facts.version is None:
        return ok("there is no state yet")
    return not_looked_at(f"the state has version {facts.version}")


def _flags(facts: StateFacts) -> str:
    return shlex.join(facts.reach)


STATE: Mapping[str, Callable[[StateFacts], Outcome]] = {
    "state-schema": version,
    "state-bucket": bucket,
    "state-lease": lease,
    "state-tables": tables,
    "state-statements": statements,
    "state-decisions": decisions,
    "state-checkpoint": checkpoint,
}
