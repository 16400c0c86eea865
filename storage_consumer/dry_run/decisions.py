"""What operators have decided about tables, and no consumer has obeyed yet: a plan shows the round that obeys it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage_consumer.model import TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.table_decisions import Foreseen, held, is_skipped
from storage_consumer.plan.table_state import TableState

_GONE = frozenset((TableState.DROPPED, TableState.EXCLUDED))
_TAKES_KEYS = frozenset(("accept-keys", "reload-done"))


def decided(restart: Restart, foreseen: Sequence[Foreseen]) -> Restart:
    """Return what an earlier run left, as the next round finds it once it has obeyed these decisions."""
    if not foreseen:
        return restart
    followed = [each for each in foreseen if not each.refusal]
    keys = {each.decision.table_key for each in followed}
    stays = [each for each in foreseen if _holds(each)]
    own = {each.decision.table_key: each.table for each in followed}
    is_there = [each for each in followed if each.table.name.table and each.table.state not in _GONE]

    # A decision takes the place of an earlier one, even where it is refused.
    others = {each.decision.table_key for each in foreseen}
    return replace(
        restart,
        tables={**restart.tables, **{key: table.checkpoint for key, table in own.items()}},
        behind=restart.behind - keys | {key for key, table in own.items() if not table.follows},
        dropped=restart.dropped - keys | {key for key, table in own.items() if table.state == TableState.DROPPED},
        lost={
            **{key: why for key, why in restart.lost.items() if key not in keys},
            **{key: table.error for key, table in own.items() if table.state == TableState.LOST},
        },
        excluded={
            **{key: name for key, name in restart.excluded.items() if key not in keys},
            **{key: table.name for key, table in own.items() if table.state == TableState.EXCLUDED},
        },
        skipped={
            **{key: error for key, error in restart.skipped.items() if key not in keys},
            **{key: table.error for key, table in own.items() if is_skipped(table.state, table.error)},
        },
        held={
            **{key: why for key, why in restart.held.items() if key not in others},
            **{each.decision.table_key: held(each.decision, each.refusal) for each in stays},
        },
        paused=restart.paused - others | {each.decision.table_key for each in stays if each.decision.verb == "pause"},
        copies={**restart.copies, **{key: table.copies for key, table in own.items()}},
        targets={
            **{key: place for key, place in restart.targets.items() if key not in keys},
            **{each.decision.table_key: (each.table.name, each.place) for each in is_there},
        },
    )


def _holds(each: Foreseen) -> bool:
    """Return whether a decision keeps its table from running."""
    return each.decision.verb == "pause" or (each.decision.verb == "reload-done" and bool(each.refusal))


def with_new_keys(foreseen: Iterable[Foreseen]) -> frozenset[TableName]:
    """Return the tables of the target, by folded name, whose keys are taken as they are then."""
    return frozenset(each.place.folded() for each in foreseen if not each.refusal and each.decision.verb in _TAKES_KEYS)


def announced(each: Foreseen) -> str:
    """Return what a plan says of a decision."""
    made = each.decision
    who = f"`{made.verb}` of the table {each.table.name}, decided by {made.decided_by} at {made.decided_at} UTC,"
    if each.refusal:
        return f"{who} would be refused: {each.refusal}"
    return f"{who} is obeyed before the next round: this plan counts on it"
