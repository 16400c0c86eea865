"""What is found by bisection is what a look at all versions finds, whatever is known of a table and in whatever order it came."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.model import DataFile, DdlId, DdlKind, TableDefinition, VersionKey
from storage_consumer.plan.finished_files import FileSequences
from storage_consumer.plan.in_order import Numbers, Together
from storage_consumer.plan.planner import PendingDdl, PendingDdls, Position, ready_ddls, standing_still
from storage_consumer.plan.steps import MAKES_TABLE
from storage_consumer.plan.table import Timeline
from storage_consumer.plan.table_files import TableFiles, TableVersionConsumer
from storage_consumer.sql.parse import parsed
from storage_consumer.tso import ddl_is_stored, may_hold_rows
from tests.unit.building import ALTER, CREATE, DROP, RENAME, data_file, definition, key, step

VERSIONS = range(1, 5)
DIRECTORIES = ("s/t", "17")
STATEMENTS = (
    ("", 0),
    ("ALTER TABLE `t` COMMENT 'x'", ALTER),
    ("CREATE TABLE `t` (`id` INT, UNIQUE KEY (`id`) GLOBAL)", CREATE),
    ("DROP TABLE `t`", DROP),
    ("RENAME TABLE `s`.`x` TO `s`.`t`", RENAME),
    ("RENAME TABLE `s`.`t` TO `s`.`x`", RENAME),  # it leads to another table, so it gives no structure of this one
)
Versions = Mapping[VersionKey, TableVersionConsumer]


@dataclass(slots=True)
class Known:
    """All that is known of a table, with the parts that are tested."""

    files: TableFiles = field(default_factory=lambda: TableFiles(FileSequences()))
    elsewhere: TableFiles = field(default_factory=lambda: TableFiles(FileSequences()))
    """Another table, to which directories move and from which they come back."""
    statements: dict[int, int] = field(default_factory=dict)
    ends: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    timeline: Timeline = field(init=False)
    listed: list[DataFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        """With a timeline on its versions."""
        self.timeline = Timeline(key("s/t"), self.files.versions)

    # what comes

    def define(self, place: VersionKey, statement: int) -> None:
        """A schema file is there, perhaps in place of another."""
        query, kind = STATEMENTS[statement % len(STATEMENTS)]
        described = definition("s/t", place[0], query, kind)
        (self.elsewhere if place in self.elsewhere.versions else self.files).define(place, described)

    def offer(self, place: VersionKey, number: int) -> None:
        """A data file is there: of no partition, or of one of two."""
        file = data_file(place[1], place[0], 1 + number // 3, partition=(None, 7, 8)[number % 3])
        (self.elsewhere if place in self.elsewhere.versions else self.files).offer(file)
        self.listed.append(file)

    def finish(self, place: VersionKey, number: int) -> None:
        """The rows of one of its data files are applied."""
        files = self.elsewhere if place in self.elsewhere.versions else self.files
        of_it = [file for file in self.listed if file.version_key == place]
        if of_it:
            files.finish(of_it[number % len(of_it)])

    def move(self, place: VersionKey, _: int) -> None:
        """A directory turns out to belong to the other table, or to this one after all."""
        old, new = (self.files, self.elsewhere) if place in self.files.versions else (self.elsewhere, self.files)
        if place in old.versions:
            new.take_over(place, old.give_away(place))

    def lead(self, place: VersionKey, statement: int) -> None:
        """A statement leads to the table, wherever it lies."""
        query, kind = STATEMENTS[1 + statement % (len(STATEMENTS) - 1)]
        self.timeline.add(definition("s/t", place[0], query, kind))
        self.statements[place[0]] = kind

    def end(self, place: VersionKey, part: int) -> None:
        """The table ends, or its database."""
        self.ends[part % 2].add(place[0])


EVENTS: tuple[Callable[[Known, VersionKey, int], None], ...] = (
    *(Known.define, Known.define, Known.offer, Known.offer, Known.finish),
    *(Known.move, Known.lead, Known.end),
)
HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.tuples(st.sampled_from(VERSIONS), st.sampled_from(DIRECTORIES)),
        st.integers(0, 11),
    ),
    min_size=20,
    max_size=60,
)


@given(HISTORIES)
def test_neighbours(history: list[tuple[Callable[[Known, VersionKey, int], None], VersionKey, int]]) -> None:
    """Each question to a timeline, and each about its files, has the answer that a look at all versions gives."""
    known = Known()
    for event, place, number in history:
        event(known, place, number)
        # Also between events: what is asked changes no later answer.
        if number % 4 == 0:
            compare(known)
    compare(known)


def compare(known: Known) -> None:
    """Every answer, at every version."""
    versions, ends, timeline = known.files.versions, known.ends[0] | known.ends[1], known.timeline
    looked_up = Together(*map(Numbers, known.ends))
    assert known.files.first == min((number for number, _ in versions), default=0)
    for at in range(VERSIONS.stop + 1):
        assert timeline.structure_at(at) is structure_at(versions, at)
        assert timeline.in_force(at) is in_force(versions, at)
        made = timeline.made_before(at)
        assert (made and (made.table_dir, made.definition)) == made_before(versions, at)
        wanted = definition("s/t", at)
        assert timeline.needs_table_before(wanted, looked_up) is needs_table_before(known, at, ends)
        assert timeline.stays_after(at) is stays_after(known, at)
        assert timeline.is_passing_at(at, looked_up) is is_passing_at(known, at, ends)
        assert timeline.is_over(at, looked_up) is is_over(versions, at, ends)
        assert timeline.is_known_from(at) is any(n >= at for n in telling(versions) | known.statements.keys())
        assert all(
            timeline.has_statement(at, last) is any(at <= n <= last for n in known.statements) for last in VERSIONS
        )
        assert known.files.readable(at) == readable(versions, at)
    compare_files(known)


def compare_files(known: Known) -> None:
    """Every answer about files of the table."""
    versions, files = known.files.versions, known.files
    listed = [file for file in known.listed if file.version_key in versions]
    assert all(files.out_of_turn([file]) == out_of_turn(versions, file) for file in listed)
    if listed:
        assert (files.crossing(listed) != "") is crosses(versions, listed)
    sequences = {file.sequence for file in known.listed}
    assert files.not_there(dict.fromkeys(sequences, 9)) == [
        (sequence, reached, 9) for sequence in sequences if (reached := reached_in(known, sequence)) < 9
    ]
    for at in VERSIONS:
        assert all(
            files.is_before(file.sequence, at) is (file in listed and file.version < at) for file in known.listed
        )


# a look at all versions


def structures(versions: Versions) -> Iterator[tuple[int, str, TableDefinition]]:
    """The structures of the table, in the order in which their directories came."""
    for (number, table_dir), version in versions.items():
        if version.structure is not None:
            yield number, table_dir, version.structure


def telling(versions: Versions) -> set[int]:
    """The versions of directories that have more than a step of another table's rename."""
    return {n for (n, _), v in versions.items() if v.structure is not None or v.definition is None or v.sequences}


def structure_at(versions: Versions, at: int) -> TableDefinition | None:
    """The newest up to a version; of several the one with a statement, and of these the first that came."""
    found = [(number, structure) for number, _, structure in structures(versions) if number <= at]
    return max(found, key=lambda each: (each[0], each[1].is_ddl), default=(0, None))[1]


def in_force(versions: Versions, at: int) -> TableDefinition | None:
    """The same, or the first known."""
    known = [structure for _, _, structure in structures(versions)]
    return structure_at(versions, at) or min(known, key=lambda found: found.version, default=None)


def made_before(versions: Versions, at: int) -> tuple[str, TableDefinition] | None:
    """Directory and definition of the last statement before a version that made the table."""
    makes = MAKES_TABLE | {DdlKind.CREATE_SCHEMA}
    made = [each for each in structures(versions) if each[0] < at and each[2].ddl_type in makes]
    return max(made, key=lambda each: each[:2])[1:] if made else None


def needs_table_before(known: Known, at: int, ends: Collection[int]) -> bool:
    """Whether the last thing before a version is an end, or nothing."""
    found = [(number, structure.ddl_type) for number, _, structure in structures(known.files.versions) if number < at]
    found += [(number, int(DdlKind.DROP_TABLE)) for number in ends if number < at]
    found += [(number, kind) for number, kind in known.statements.items() if number <= at]
    return max(found, default=(0, DdlKind.DROP_TABLE))[1] in (DdlKind.DROP_TABLE, DdlKind.DROP_SCHEMA)


def stays_after(known: Known, at: int) -> bool:
    """Whether the first thing after a version does not make the table."""
    later = [(n, not found.is_ddl, found.ddl_type) for n, _, found in structures(known.files.versions) if n > at]
    later += [(number, False, kind) for number, kind in known.statements.items() if number > at]
    return bool(later) and min(later)[-1] not in MAKES_TABLE


def is_passing_at(known: Known, at: int, ends: Collection[int]) -> bool:
    """Whether nothing is known right before a version or right after it."""
    versions = known.files.versions
    numbers = telling(versions) | known.statements.keys()
    last = max((number for number in numbers.union(ends) if number < at), default=None)
    rows = any(number == at and found.sequences for (number, _), found in versions.items())
    return (last is None or last in ends) and not rows and not stays_after(known, at)


def is_over(versions: Versions, at: int, ends: Collection[int]) -> bool:
    """Whether the last end was before a version, and nothing is known after it."""
    last = max(ends, default=-1)
    return last < at and all(number <= last for number in telling(versions))


def readable(versions: Versions, target: int) -> tuple[list[DataFile], dict[VersionKey, TableDefinition]]:
    """The files that may hold rows up to a target, by version and directory, and the definitions of their directories."""
    files: list[DataFile] = []
    definitions: dict[VersionKey, TableDefinition] = {}
    for place, version in sorted(versions.items(), key=lambda item: item[0]):
        described = version.definition
        if described is not None and may_hold_rows(version.version, target, is_ddl=version.is_ddl):
            found = version.readable(target)
            files += found
            definitions |= {place: described} if found else {}
    return files, definitions


def out_of_turn(versions: Versions, file: DataFile) -> str:
    """Its path, if a file that comes after it was applied, of the same partition or where one of the two has none."""
    later = [(n, partition) for (n, _), v in versions.items() if n > file.version for partition in v.applied]
    if versions[file.version_key].is_behind(file) or any(
        partition == file.partition or None in (partition, file.partition) for _, partition in later
    ):
        return file.stored.path
    return ""


def crosses(versions: Versions, files: Collection[DataFile]) -> bool:
    """Whether the files have partitions, the table has several, and a statement makes a GLOBAL index."""
    described = [version.definition for version in versions.values() if version.definition is not None]
    return (
        any(file.partition is not None for file in files)
        and len(set[int]().union(*(version.partitions for version in versions.values()))) > 1
        and any(parsed(each).makes_global_index for each in described)
    )


def reached_in(known: Known, sequence: str) -> int:
    """How far a sequence is complete."""
    found = [v.reached(sequence) for v in known.files.versions.values() if sequence in v.sequences]
    return max([known.files._known[sequence].done_upto, *found])


# statements that wait

KEYS = ("s/a", "s/b", "s/c", "s/d")
WAITING = st.lists(
    st.builds(
        lambda version, own, others, checksum: PendingDdl(
            step=step(own, version, "ALTER TABLE `t` COMMENT 'x'", checksum=checksum),
            touches=frozenset(map(key, {own, *others})),
        ),
        st.integers(1, 5),
        st.sampled_from(KEYS),
        st.sets(st.sampled_from(KEYS), max_size=2),
        st.integers(1, 3),
    ),
    unique_by=lambda ddl: ddl.step.identity,
    max_size=12,
)


@given(WAITING, st.lists(st.integers(0, 11), max_size=8), st.integers(0, 6), st.sets(st.sampled_from(KEYS)))
def test_first_statements(waiting: list[PendingDdl], gone: list[int], end: int, still: set[str]) -> None:
    """The first statement of each table, and what can run, are what a look at all that wait finds, whichever have run."""
    held = PendingDdls(waiting)
    left: dict[DdlId, PendingDdl] = {ddl.step.identity: ddl for ddl in waiting}
    for number in gone[: len(waiting)]:
        identity = waiting[number % len(waiting)].step.identity
        held.remove(identity)
        left.pop(identity, None)
    assert list(held) == list(left.values())
    first = {k: min(versions) for k in map(key, KEYS) if (versions := [d.step.version for d in held if k in d.touches])}
    assert held.barriers == first
    wait = {k: [d.step.version for d in held if k in d.touches and d.step.holds_up_rows(k)] for k in map(key, KEYS)}
    assert held.row_barriers == {k: min(versions) for k, versions in wait.items() if versions}
    positions = {key(k): Position(checkpoint=first.get(key(k), 0), blocked=k in still) for k in KEYS}
    stands = standing_still(held, positions)
    ready = {step.identity for group in ready_ddls(held, positions, stands, end, is_stable=False) for step in group}
    # All tables stand at their first statement, so of one version those can run that share tables with no statement that cannot.
    assert ready == {ddl.step.identity for ddl in can_run(list(left.values()), first, set(map(key, still)), end)}


def can_run(waiting: list[PendingDdl], first: Mapping[str, int], still: Collection[str], end: int) -> list[PendingDdl]:
    """Statements that are the first of all their tables, none of which stands still; those that share a table wait for each other."""
    stored = [ddl for ddl in waiting if ddl_is_stored(ddl.step.version, end, is_stable=False)]
    stuck = {
        ddl.step.identity for ddl in stored if any(first[k] != ddl.step.version or k in still for k in ddl.touches)
    }
    while more := {
        ddl.step.identity
        for ddl in stored
        if ddl.step.identity not in stuck
        and any(
            other.step.identity in stuck and other.step.version == ddl.step.version and other.touches & ddl.touches
            for other in stored
        )
    }:
        stuck |= more
    return [ddl for ddl in stored if ddl.step.identity not in stuck]
