"""The proof that no change lies between a copy and the changefeed: that the changefeed began at or before the copy.

And that a copy is as of the TSO that it says, as far as the columns of its tables show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from storage_consumer.amounts import some_of
from storage_consumer.model import TableDefinition, folded_name, physical_ms, tso_of
from storage_consumer.plan.early import SHOWS_EARLY
from storage_consumer.plan.steps import key_of
from storage_consumer.sql.parse import parsed
from storage_consumer.sql.statement import statement_of
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import begins_in_time

_AHEAD_MS = 10 * 60 * 1000
"""How far the source's clock, by which the TSO of a copy is made, may be ahead of another one."""
_HIDDEN = "_V$_"
_NAMED = 5
"""Most columns that a message names."""
_NEW_FEED = "a new changefeed at the copy, `cdc cli changefeed create --start-ts={low}`, with a prefix of its own"


def gap_proof(low: int, start_ts: int, first_storage_checkpoint: int) -> str:
    """Return an empty text if every change after the copy is in the bucket; else what is missing, with both remedies.

    `low`: the TSO at or below which the copy holds every change. `start_ts`: the changefeed's start-ts, 0 if nobody gave it.
    `first_storage_checkpoint`: the checkpoint of ``metadata`` that this state saw first, 0 if it has seen none. A changefeed's checkpoint
    never lies before its start-ts, so a checkpoint at or before the copy is as good a proof. Files that only look old are none.
    """
    if start_ts:
        return "" if begins_in_time(start_ts, low) else _late(low, start_ts)
    if first_storage_checkpoint and begins_in_time(first_storage_checkpoint, low):
        return ""
    return _unproven(low, first_storage_checkpoint)


def is_in_future(low: int, now_ms: float) -> bool:
    """Return whether no source can have issued the TSO of a copy yet; `now_ms`: milliseconds since 1970-01-01 UTC by another clock."""
    return physical_ms(low) > now_ms + _AHEAD_MS


def refused_future(low: int, now: float, storage_checkpoint: int) -> str:
    """Return why a copy that is as of the TSO `low` cannot be used, or "": all that the bucket brings up to then would be left out.

    `now`: seconds by our clock, which may be wrong; the source's clock has reached the checkpoint that the bucket reports.
    """
    latest = max(now * 1000, physical_ms(storage_checkpoint))
    if not is_in_future(low, latest):
        return ""
    return (
        f"the copy is as of {_shown(low)}, which is in the future: the clock of this machine shows {tso_time(tso_of(now))}, and the bucket's checkpoint is "
        f"{_shown(storage_checkpoint) if storage_checkpoint else 'not there yet'}. If the clock is wrong, set it and try again. If it is "
        "right, the `Pos` in the export's metadata is damaged: export again"
    )


def of_another_time(copied: Iterable[TableDefinition], low: int, shown: Iterable[TableDefinition]) -> str:
    """Return which table of a copy has other columns than its schema files say as of the copy's TSO `low`, and the next step; or "".

    `copied`: the tables of the copy, without generated columns. `shown`: what the bucket's schema files say, of any time. A table that
    has no schema file up to `low`, as one that never changed, shows nothing; a statement right after it may show in the copy already.
    """
    known: defaultdict[str, list[TableDefinition]] = defaultdict(list)
    for each in sorted(shown, key=lambda each: each.version):
        if each.columns and not each.is_view:
            known[key_of(parsed(each).subject)].append(each)
    for table in copied:
        past = [each for each in known[key_of(table.name)] if each.version <= low]
        later = [each for each in known[key_of(table.name)] if each.version > low]
        fitting = [each for each in past if each.version == past[-1].version]
        fitting += [each for each in later if each.version == later[0].version and each.ddl_type in SHOWS_EARLY]
        if past and all(map(_different(table), fitting)):
            return _of_another_time(table, low, past[-1])
    return ""


def _different(table: TableDefinition) -> Callable[[TableDefinition], set[str]]:
    """Return what tells the columns that a schema file has and the table of a copy lacks, or the other way round."""
    made = {folded_name(column.name) for column in statement_of(table.query).columns if column.generated[0] > 0}
    own = {folded_name(column.name) for column in table.columns} - made

    def differing(definition: TableDefinition) -> set[str]:
        # Those of expression indexes, which no statement shows.
        listed = {folded_name(c.name) for c in definition.columns if not c.name.startswith(_HIDDEN)}
        return own ^ (listed - made)

    return differing


def _of_another_time(table: TableDefinition, low: int, newest: TableDefinition) -> str:
    differing = sorted(_different(table)(newest))
    there = {folded_name(column.name) for column in newest.columns}
    said = {
        "lacks": [name for name in differing if name in there],
        "has": [name for name in differing if name not in there],
    }
    parts = " and ".join(f"{verb} {some_of(names, _NAMED)}" for verb, names in said.items() if names)
    return (
        f"the table {table.name} of the copy ({table.path}) {parts}, unlike {newest.path} (version {_shown(newest.version)}), its newest schema file "
        f"up to the copy's TSO {_shown(low)}: that TSO or the files of the copy are of another time. Restore the `metadata` that was written with "
        "the files, or export again into an empty folder"
    )


def _late(low: int, start_ts: int) -> str:
    return (
        f"the changefeed's start-ts {_shown(start_ts)} is later than the copy {_shown(low)}: the changes between them are in neither. "
        f"Either take a new copy, which is then later than start-ts; or make {_NEW_FEED.format(low=low)}"
    )


def _unproven(low: int, first_storage_checkpoint: int) -> str:
    seen = (
        f"the first checkpoint that was seen of it is {_shown(first_storage_checkpoint)}"
        if first_storage_checkpoint
        else "no checkpoint of it has been seen"
    )
    return (
        f"nothing proves that the changefeed began at or before the copy {_shown(low)}: its start-ts was not given, and {seen}. Either give "
        "its start-ts: --start-ts TSO (start_ts=TSO in Python), or --config with what `cdc cli changefeed query` prints; or take a new copy, which is then later "
        "than that checkpoint"
        + ("" if first_storage_checkpoint else ", once the bucket has `metadata` and this program has seen it")
    )


def _shown(ts: int) -> str:
    return f"{ts} ({tso_time(ts)})"
