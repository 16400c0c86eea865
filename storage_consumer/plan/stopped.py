"""Which statements stopped their tables, until an operator decides about them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage_consumer.plan.steps import DdlStep

LATE = (
    "the DDL of {} arrived after later rows had been applied; if it is still needed, run it manually (the rows are "
    "as the source wrote them)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One statement that stopped its table."""

    step: DdlStep
    late: bool
    """Whether it turned up after later rows of its table had been applied, and so is no longer queued."""


class StoppedDdl:
    """The statements that stopped a table since the program started."""

    def __init__(self) -> None:
        """Start without any statement."""
        self._stopped: dict[tuple[str, int, int], Stopped] = {}
        self._late: set[tuple[str, int, int]] = set()
        self._obeyed: set[tuple[tuple[str, int, int], str]] = set()
        self.decided_late: dict[tuple[str, int, int], DdlStep] = {}
        """Statements that came late and were decided about, until their outcome is known; their tables stay halted."""

    def note(self, step: DdlStep, *, late: bool = False) -> None:
        """Record that a statement stopped its table."""
        self._late |= {step.identity} if late else set()
        self.decided_late.pop(step.identity, None)
        self._stopped[step.identity] = Stopped(step=step, late=self.is_late(step))

    def is_late(self, step: DdlStep) -> bool:
        """Return whether a statement turned up after later rows of its table had been applied, so that it advances no table."""
        return step.identity in self._late

    def released(self, decided: Mapping[tuple[str, int, int], str]) -> list[Stopped]:
        """Return those in time with a decision that was not returned yet. `decided`: statement → when it was decided on.

        Each decision is returned once: if the text that it gives is refused too, the table waits for another decision.
        """
        new = [identity for identity in self._stopped if (identity, decided.get(identity, "")) not in self._obeyed]
        found = [self._stopped.pop(identity) for identity in new if identity in decided]
        self._obeyed |= {(stopped.step.identity, decided[stopped.step.identity]) for stopped in found}
        self.decided_late |= {stopped.step.identity: stopped.step for stopped in found if stopped.late}
        return sorted((each for each in found if not each.late), key=lambda stopped: stopped.step.version)
