"""The workers for statements: which of them are fenced off from a former owner, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from storage_consumer.driver.ddl_workers import WORKERS, DdlWorkers
from storage_consumer.errors import TargetUnavailable
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import DdlContext, TableProgress
from tests.harness.twins.storage import FakeClock
from tests.unit.building import CREATE, definition

CONTEXT = DdlContext(database_is_ours=True, table_was_seen=False)
EVERYBODY = list(range(WORKERS))


class Fences:
    """Notes which workers were fenced; none runs anything."""

    def __init__(self, number: int, fenced: list[int], faults: set[int]) -> None:
        """One worker."""
        self._number = number
        self._fenced = fenced
        self._faults = faults

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Do nothing."""
        del step, context, moved
        return ""

    def refused(self, step: DdlStep, error: str) -> None:
        """Do nothing."""

    def fence(self) -> None:
        """Note it, or fail."""
        if self._number in self._faults:
            raise TargetUnavailable("nobody answers")
        self._fenced.append(self._number)

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def fenced() -> list[int]:
    """Numbers of the workers that were fenced, in order."""
    return []


@pytest.fixture
def faults() -> set[int]:
    """Numbers of the workers that cannot be fenced now."""
    return set()


@pytest.fixture
def late() -> list[Callable[[], None]]:
    """Statements that were started and are still to run."""
    return []


@pytest.fixture
def workers(fenced: list[int], faults: set[int], late: list[Callable[[], None]]) -> DdlWorkers:
    """Workers whose statements run when a test lets them."""
    return DdlWorkers(lambda number: Fences(number, fenced, faults), FakeClock(), late.append)


def test_each_owner_fences_once(workers: DdlWorkers, fenced: list[int]) -> None:
    """All workers are fenced before the first statement of an owner, and not again before its others."""
    workers.fence(1)
    workers.fence(1)
    assert fenced == EVERYBODY
    workers.fence(2)
    assert fenced == EVERYBODY * 2


def test_busy_worker_is_fenced_once_it_is_idle(
    workers: DdlWorkers, fenced: list[int], late: list[Callable[[], None]]
) -> None:
    """One that was busy when the lease came back under another epoch may have no lock: it is fenced before its next statement."""
    workers.fence(1)
    workers.start(
        DdlStep(table_dir="s/t", table_key="`s`.`t`", definition=definition("s/t", 5, "", CREATE)), CONTEXT, ()
    )
    fenced.clear()
    workers.fence(2)
    assert fenced == EVERYBODY[1:]
    late.pop()()
    workers.collect(0)
    workers.fence(2)
    assert fenced == [*EVERYBODY[1:], 0]


def test_fence_that_fails_is_tried_again(workers: DdlWorkers, fenced: list[int], faults: set[int]) -> None:
    """Nothing starts meanwhile: the fault ends the round. The next one fences the workers that are left."""
    faults.add(2)
    with pytest.raises(TargetUnavailable):
        workers.fence(1)
    faults.clear()
    workers.fence(1)
    assert sorted(fenced) == EVERYBODY
