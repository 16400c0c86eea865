"""What a planned round has come to so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from storage_consumer.dry_run.result import PlannedRows, PlannedStatement, PlannedWave
from storage_consumer.model import DdlId


@dataclass(slots=True)
class Recording:
    """Collects rows and statements in the order of the round."""

    _places: dict[DdlId, tuple[int, int]] = field(default_factory=dict)
    _waves: list[tuple[list[PlannedRows], list[PlannedStatement]]] = field(default_factory=list)

    def wave(self, rows: Sequence[PlannedRows]) -> None:
        """Begin a wave with the rows of one job."""
        # Two jobs in a row: a job has a limited number of files.
        self._waves.append((list(rows), []))

    def statement(self, statement: PlannedStatement, identity: DdlId) -> None:
        """Add a statement to the wave; what was recorded of it before is replaced."""
        if not self._waves:
            self._waves.append(([], []))
        made = self._waves[-1][1]
        place = self._places.get(identity)
        if place is not None and place[0] == len(self._waves):
            made[place[1]] = statement
            return
        self._places[identity] = len(self._waves), len(made)
        made.append(statement)

    @property
    def waves(self) -> tuple[PlannedWave, ...]:
        """What was recorded."""
        return tuple(PlannedWave(rows=tuple(rows), statements=tuple(made)) for rows, made in self._waves)
