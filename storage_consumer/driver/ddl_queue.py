"""The statements of a round that wait for their turn.

Statements of one version that are ready together are a *group*: they run one after another, since each may need what the previous
one created. Groups touch different tables, so they run in parallel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.model import DdlId
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep


@dataclass(slots=True)
class DdlQueue:
    """Groups of statements, each in the order in which it runs."""

    manager: ConsumerManager
    workers: DdlWorkers
    _groups: list[deque[DdlStep]] = field(default_factory=list)
    _taken: set[DdlId] = field(default_factory=set)
    """Statements that were added in this round: each is tried once in it."""

    def has(self, group: Sequence[DdlStep]) -> bool:
        """Return whether part of a group was added already, or still runs since an earlier round."""
        running = {step.identity for step, _ in self.workers.running}
        return any(step.identity in self._taken or step.identity in running for step in group)

    @property
    def at_work(self) -> list[DdlStep]:
        """The statements that run or wait for their turn."""
        waiting = (step for group in self._groups for step in group)
        return [step.origin for step in (*waiting, *(step for step, _ in self.workers.running))]

    def add(self, group: Sequence[DdlStep], ordered: Sequence[DdlStep]) -> None:
        """Add a group. `ordered`: its statements, and those inferred from them, in the order in which they run."""
        self._groups.append(deque(ordered))
        self._taken |= {step.identity for step in group}

    def take_ready(self) -> Iterator[DdlStep]:
        """Yield each statement that may start now, and remove it. It has to be started or let go before the next one is asked for."""
        for group in self._groups:
            # By version, not by group: the rest of a version may have been started by an earlier round. The caller starts or releases
            # what it gets before it asks for more, so each check sees the statement before it.
            while group and self.workers.is_free and not self._is_running(group[0].version):
                yield group.popleft()
        self._groups = [group for group in self._groups if group]

    def _is_running(self, version: int) -> bool:
        """Return whether a statement of this version is running."""
        return any(step.version == version for step, _ in self.workers.running)

    def release(self, step: DdlStep) -> None:
        """Let a statement be tried again in this round."""
        self._taken.discard(step.identity)

    def let_go(self, step: DdlStep) -> None:
        """Release a statement that had no effect: those of its group that may need it do not start in this round."""
        stopped = set(self.manager.touches.of(step))
        # Only the groups shrink here, never the list of them: `take_ready` may be in the middle of it.
        for group in self._groups:
            # Repeated until nothing is added: a statement that is held back may hold back others.
            while mates := [mate for mate in group if self.manager.touches.of(mate) & stopped]:
                for mate in mates:
                    group.remove(mate)
                    stopped |= self.manager.touches.of(mate)
