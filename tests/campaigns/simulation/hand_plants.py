"""Planted bugs in what is shown of tables that people have changed in the target, and of retries; see `plants`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from storage_consumer.driver import doubts
from storage_consumer.plan.table_decisions import Obeyed
from storage_consumer.rows import comparison as result
from storage_consumer.rows import match
from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from storage_consumer.watch import report as health
from storage_consumer.watch.recorder import Recorder
from storage_consumer.watch.report import Health
from tests.campaigns.simulation.remembered import everywhere
from tests.harness.twins import state
from tests.harness.twins.state import MemoryDecisions


def _resume_clears_the_doubt(stack: ExitStack) -> None:
    """A table that goes on because an operator says so counts as equal."""
    good = MemoryDecisions.apply_to_tables

    def bad(self: MemoryDecisions, busy: Collection[str] = (), *, tells_time: bool = True) -> list[Obeyed]:
        found = good(self, busy, tells_time=tells_time)
        for each in found:
            if each.decision.verb == "resume":
                self._owned.all.verified.pop(each.decision.table_key, None)
        return found

    stack.enter_context(patch.object(MemoryDecisions, "apply_to_tables", bad))


def _unequal_is_healthy(stack: ExitStack) -> None:
    """The word for the feed does not depend on what comparisons found."""
    good = health.verdict

    def bad(**signs: Any) -> Health:
        return good(**{**signs, "is_unequal": False})

    everywhere(stack, health.verdict, bad)


def _alterations_unseen(stack: ExitStack) -> None:
    """Nobody looks whether the table that halts is what it was."""
    everywhere(stack, match.altered, lambda *_: "")


def _skips_undoubted(stack: ExitStack) -> None:
    """A table counts as equal though a statement of it was skipped."""
    everywhere(stack, doubts.doubt_without, lambda *_: None)


def _names_lose_doubts(stack: ExitStack) -> None:
    """What was found of a table is forgotten when it gets another name."""
    stack.enter_context(patch.object(state, "_take_along", lambda *_: None))


def _any_comparison_counts(stack: ExitStack) -> None:
    """What a part of the rows shows, or an older look, is believed like a whole comparison."""

    def bad(found: TableResult, before: VerifyOutcome | None, run: str) -> VerifyOutcome | None:
        return found.outcome

    # The model stores results by the same rule.
    stack.enter_context(patch("tests.campaigns.simulation.hands.counting", bad))
    everywhere(stack, result.counting, bad)


def _retries_begin_anew(stack: ExitStack) -> None:
    """Each try is a phase of its own, so that nobody sees since when nothing answers."""
    stack.enter_context(patch.object(Recorder, "_begin", Recorder._enter))


HAND_PLANTS: Mapping[str, Callable[[ExitStack], None]] = {
    "resume-clears-the-doubt": _resume_clears_the_doubt,
    "unequal-is-healthy": _unequal_is_healthy,
    "alterations-unseen": _alterations_unseen,
    "skips-undoubted": _skips_undoubted,
    "names-lose-doubts": _names_lose_doubts,
    "any-comparison-counts": _any_comparison_counts,
    "retries-begin-anew": _retries_begin_anew,
}
"""The bugs by name."""
