"""One table with a long history: a round costs what is new in it, and what has to be looked at whole costs the same for each version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest

from storage_consumer.model import DataFile, TableDefinition
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import Finished
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.planner import unreached
from storage_consumer.plan.steps import DdlStep, RowStep
from tests.unit.building import ALTER, CREATE, DROP, data_file, definition, key, named
from tests.unit.counting import instructions

pytestmark = pytest.mark.slow
STEP = 10
"""From one version to the next."""
SQL = "ALTER TABLE `t` COMMENT 'x'"
GLOBAL = "CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) GLOBAL) PARTITION BY HASH (`p`)"
Kind = Callable[[int], TableDefinition]


def altered(version: int) -> TableDefinition:
    """The table is created, and then altered again and again."""
    if version == STEP:
        return definition("s/t", version, GLOBAL, CREATE)
    return definition("s/t", version, SQL, ALTER)


def recreated(version: int) -> TableDefinition:
    """The table is created and dropped in turn."""
    if version // STEP % 2:
        return definition("s/t", version, "CREATE TABLE `t` (`id` INT)", CREATE)
    return definition("s/t", version, "DROP TABLE `t`", DROP)


def bare(version: int) -> TableDefinition:
    """The table is created, and all later files give its structure alone."""
    return altered(version) if version == STEP else definition("s/t", version)


KINDS = (altered, recreated, bare)


class Replay:
    """A manager, and all that a round asks of it."""

    def __init__(self, kind: Kind, restart: Restart | None = None) -> None:
        """With what an earlier run left."""
        self.manager = ConsumerManager(restart or Restart(), gap_timeout=60)
        self.ran: list[DdlStep] = []
        self.read: list[DataFile] = []
        self.done: dict[str, Finished] = {}
        """What was stored of the sequences."""
        self._kind = kind

    def round(self, versions: Sequence[int], files: Sequence[DataFile] = (), *, end: int) -> None:
        """Schema files of these versions and data files are listed, with a checkpoint; all that can be done is done."""
        manager, made = self.manager, [self._kind(version) for version in versions]
        manager.new_round(now=1)
        manager.dispatch(made, {d.path: "s/t" for d in made}, files)
        manager.note_listed(0)
        assert not any((manager.covered(end), manager.refuse_places(), manager.look_for_gaps(end, 0.0)))
        manager.catalog.taken_over()
        manager.sequences.rewound()
        while wave := manager.next_wave(end, is_stable=False):
            for step in wave.rows:
                self._apply(step)
            for ddl in (ddl for group in wave.ddls for ddl in group):
                self._run(ddl)
        assert not unreached(manager.tables, manager.touches.pending(), end, manager.stuck(end))

    def _apply(self, step: RowStep) -> None:
        self.manager.rows_applied(step)
        for file in step.files:
            self.manager.tables[step.table_key].finish(file, max_ts=file.version + 1, next_ts=file.version + 1)
            self.read.append(file)
        self.done |= self.manager.sequences.to_store()

    def _run(self, step: DdlStep) -> None:
        timeline = self.manager.tables[step.table_key].timeline
        before = timeline.structure_at(step.version - 1)
        assert (before.version if before else 0) == (step.version - STEP)
        assert (timeline.made_before(step.version) is None) == (step.version == STEP)
        assert not self.manager.touches.beyond(step)
        self.manager.moved_by(step)
        self.manager.ddl_done(step)
        self.ran.append(step)


def numbers(count: int) -> list[int]:
    """The first versions."""
    return [STEP * number for number in range(1, count + 1)]


def data(versions: Sequence[int], *, partitions: Sequence[int] = (1, 2)) -> list[DataFile]:
    """A data file of each version and partition."""
    return [data_file("s/t", version, 1, partition=partition) for version, partition in product(versions, partitions)]


def after(count: int, kind: Kind) -> Replay:
    """A process that has applied so many versions, one file each."""
    replay, versions = Replay(kind), numbers(count)
    replay.round(versions, data(versions), end=versions[-1] + 5)
    assert [step.version for step in replay.ran] == (versions if kind is not bare else versions[:1])
    # The next round forgets what this one has finished.
    replay.round([], end=versions[-1] + 5)
    return replay


def stored(replay: Replay, end: int) -> Restart:
    """What that process leaves."""
    return Restart(checkpoint=end, done=replay.done, journalled=frozenset(step.identity for step in replay.ran))


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_costs_what_is_new(kind: Kind) -> None:
    """A new version with a data file takes the same work after 800 versions as after 200; so does a round with nothing new."""
    costs: list[tuple[int, int]] = []
    for count in (200, 800):
        replay, new = after(count, kind), STEP * (count + 1)
        costs.append(
            (
                instructions(lambda r=replay, v=new: r.round([v], data([v]), end=v + 5)),  # type: ignore[misc] # defaults hold what the loop has now
                instructions(lambda r=replay, v=new: r.round([], end=v + 6)),  # type: ignore[misc] # the same
            )
        )
    (new_before, idle_before), (new_after, idle_after) = costs
    assert new_after <= 1.05 * new_before
    assert idle_after <= 1.05 * idle_before


@pytest.mark.parametrize("kind", KINDS)
def test_a_backlog_costs_the_same_for_each_version(kind: Kind) -> None:
    """A first round over 400 versions takes four times the work of one over 100."""
    few, many = (instructions(lambda c=count: after(c, kind)) for count in (100, 400))  # type: ignore[misc] # as above
    assert many <= 1.1 * 4 * few


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_costs_the_same_for_each_version(kind: Kind) -> None:
    """A start with 400 versions that are finished takes four times the work of one with 100, and finds nothing to do."""
    costs = []
    for count in (100, 400):
        versions = numbers(count)
        end = versions[-1] + 5
        again = Replay(kind, stored(after(count, kind), end))
        files = [replace(file, finished=True) for file in data(versions)]
        costs.append(instructions(lambda r=again, v=versions, f=files, e=end: r.round(v, f, end=e)))  # type: ignore[misc] # as above
        assert (again.ran, again.read) == ([], [])
    assert costs[1] <= 1.1 * 4 * costs[0]


def test_a_queue_of_another_table_costs_nothing() -> None:
    """A new statement takes the same work however many of another table wait behind a version that cannot be read."""
    costs = []
    for count in (100, 400):
        replay, waiting = Replay(altered), numbers(count)
        last = waiting[-1]
        manager = replay.manager
        manager.catalog.table(named("s/t")).halt("its schema file cannot be read", "schema")
        replay.round(waiting, end=STEP)
        created, new = (
            definition("s/u", last + 1, "CREATE TABLE `u` (`id` INT)", CREATE),
            definition("s/u", last + 3, SQL),
        )
        manager.dispatch([created], {created.path: "s/u"}, [])
        manager.tables[key("s/u")].advance(last + 1)
        (only,) = manager.next_wave(last + 2, is_stable=False).ddls
        manager.ddl_done(only[0])

        def one_round(definition: TableDefinition = new, manager: ConsumerManager = manager) -> None:
            manager.new_round(now=1)
            manager.dispatch([definition], {definition.path: "s/u"}, [])
            upto = definition.version
            assert not any((manager.covered(upto), manager.refuse_places(), manager.look_for_gaps(upto, 0.0)))
            (group,) = manager.next_wave(definition.version + 1, is_stable=False).ddls
            manager.ddl_done(group[0])
            assert "version 10, held up by s.t (halted)" in manager.stuck(definition.version + 1)[key("s/t")]

        costs.append(instructions(one_round))
    assert costs[1] <= 1.05 * costs[0]


def test_a_table_behind_its_unread_files_costs_the_same_for_each() -> None:
    """What is remembered of listed and missed files is compared with what is there, each file once."""
    costs = []
    for count in (100, 400):
        versions = numbers(count)
        first = Replay(bare)
        table = first.manager.catalog.table(altered(STEP).name)
        first.manager.dispatch([bare(v) for v in versions], {bare(v).path: "s/t" for v in versions}, data(versions))
        table.halt("a value does not fit", "row")
        first.manager.note_listed(0)
        known = table.copies.known
        assert len(known.listed) == 2 * count
        again = Replay(bare, Restart(copies={table.key: known}))
        costs.append(instructions(lambda r=again, v=versions: r.round(v, data(v), end=v[-1] + 5)))  # type: ignore[misc] # as above
        assert {file.stored.path for file in again.read} == {file.stored.path for file in data(versions)}
        again.round([], end=versions[-1] + 6)
        assert again.manager.tables[key("s/t")].copies.known.listed == {}
    assert costs[1] <= 1.1 * 4 * costs[0]


@pytest.mark.slow
def test_ten_thousand_versions() -> None:
    """A table with 10,000 versions is replayed statement by statement in order; a restart finds all of it done, and goes on."""
    replay = after(10_000, altered)
    assert len(replay.read) == 20_000
    versions = numbers(10_000)
    again = Replay(altered, stored(replay, versions[-1] + 5))
    again.round(versions, [replace(file, finished=True) for file in data(versions)], end=versions[-1] + 5)
    assert (again.ran, again.read) == ([], [])
    new = versions[-1] + STEP
    again.round([new], data([new]), end=new + 5)
    assert [step.version for step in again.ran] == [new]
    assert [file.version for file in again.read] == [new, new]
