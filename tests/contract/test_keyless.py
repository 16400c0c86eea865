"""Tables without a key on every server: what is left of many events, and many deletes in one statement."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

import pytest

from storage_consumer.decode.values import WireKind
from storage_consumer.errors import RowRefused, TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.plan.loads import Load, LoadPhase, clock_of
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import JobSpec, Mode, TablePlan, WireColumn
from storage_consumer.target import keyless
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.keyless import FEW, MANY_BYTES, KeylessTable, delete_equal
from storage_consumer.target.transaction import FencedConnection
from tests.contract.test_writer import IN_BULK, Rig, real_rig, server_of
from tests.harness.servers import KINDS, DatabaseServer
from tests.unit.halves import as_events, table

NAME = TableName(schema="shop", table="log")
COLUMNS = {
    "i": ("INT", WireKind.TEXT, "INT"),
    "t": ("VARCHAR", WireKind.TEXT, "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
    "l": ("CHAR", WireKind.TEXT, "CHAR(5) CHARACTER SET latin1"),
    "f": ("FLOAT", WireKind.TEXT, "FLOAT"),
    "j": ("JSON", WireKind.TEXT, "JSON"),
    "b": ("BLOB", WireKind.HEX, "BLOB"),
    "n": ("BIT", WireKind.UNSIGNED, "BIT(9)"),
    "e": ("ENUM", WireKind.TEXT, "ENUM('a', 'B')"),
    "d": ("DATETIME", WireKind.TEXT, "DATETIME(3)"),
}
WORK: TablePlan = replace(
    table(Mode.KEYLESS),
    name=NAME,
    table_key="`shop`.`log`",
    written=tuple(WireColumn(name=name, kind=kind, type=type_) for name, (type_, kind, _) in COLUMNS.items()),
)
LINES = [
    b'1\ta\tx\t0.1\t{"a": 1}\t00ff\t7\ta\t2024-01-01 00:00:00.123',
    b'1\tA\tx\t0.1\t{"a": 1}\t00ff\t7\ta\t2024-01-01 00:00:00.123',
    b'1\ta \tx\t0.1\t{"a": 1}\t00ff\t7\ta\t2024-01-01 00:00:00.123',
    b'1\ta\tx\t0.1\t{"a": 1}\t00ff\t7\tB\t2024-01-01 00:00:00.123',
    b"\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N\t\\N",
    b'1\ta\t\xc3\xa4\t16777217\t[1, "\xe6\x97\xa5"]\t\t256\tB\t0000-00-00 00:00:00.000',
    *(b"%d\t'\\t\\\\%d\tx\t-1.5e10\tnull\t\\N\t0\ta\t1000-01-01 00:00:00.000" % (n, n) for n in range(3 * FEW)),
]
"""Some of which a collation finds equal."""
Told = list[tuple[bool, bytes]]
Group = tuple[int, Told]


@dataclass(frozen=True, slots=True)
class Log:
    """``shop.log`` on a server, and writers of it."""

    server: DatabaseServer
    rig: Rig
    open: list[FencedConnection] = field(default_factory=list)

    def target(self, *, load_data: bool = True, user: str = "root") -> RowStatements:
        """A task's connection."""
        spec = replace(self.rig.spec, load_data=load_data, downstream=replace(self.rig.downstream, user=user))
        self.open.append(made := FencedConnection(spec, "", 0))
        return RowStatements(made)

    def next_window(self) -> RowStatements:
        """A task's connection in a new window."""
        spec = replace(self.rig.spec, window_id=self.rig.state.lease.open_window(1, 0))
        self.open.append(made := FencedConnection(spec, "", 0))
        return RowStatements(made)

    def write(self, commit_ts: int, *events: tuple[bool, bytes], target: RowStatements | None = None) -> int:
        """Write the events of one commit ts."""
        return KeylessTable(target or self.target(), WORK).write(as_events((commit_ts, list(events))))

    def checkpoint(self) -> int:
        """The table's stored checkpoint, 0 if there is none."""
        found = self.server.query(f"SELECT checkpoint FROM {self.rig.downstream.state_schema}.table_progress")
        return int(found[0][0]) if found else 0

    def rows(self) -> Counter[tuple[object, ...]]:
        """All rows, by what they hold to the last byte."""
        columns = "i, HEX(t), HEX(l), f + 0, CAST(j AS CHAR), HEX(b), n + 0, e + 0, CAST(d AS CHAR)"
        return Counter(self.server.query(f"SELECT {columns} FROM shop.log"))


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.server) for kind in (*KINDS, IN_BULK)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """On each server."""
    server = server_of(request.param, request)
    made = Log(server, real_rig(server))
    columns = ", ".join(f"{name} {sql}" for name, (_, _, sql) in COLUMNS.items())
    server.query(f"CREATE TABLE shop.log ({columns})")
    yield made
    for connection in made.open:
        connection.close()
    made.rig.close()


def inserts(lines: Sequence[bytes]) -> Told:
    """Their inserts."""
    return [(True, line) for line in lines]


def deletes(lines: Sequence[bytes]) -> Told:
    """Their deletes."""
    return [(False, line) for line in lines]


@pytest.mark.parametrize("load_data", [True, False])
def test_many_deletes(log: Log, load_data: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """Of each row as many go as are deleted, one that a collation finds equal stays, and copies that are left stay as they were."""
    log.write(1, *inserts(LINES[1:]))
    after = log.rows()
    log.write(2, *inserts(LINES), *inserts(LINES[:1]), *inserts(LINES))
    target = log.target(load_data=load_data)
    many = [*deletes(LINES), *deletes(LINES[:1]), *deletes(LINES[:1]), *deletes(LINES[1:])]
    assert log.write(3, *many, target=target) == 2 * len(LINES) + 1
    assert log.rows() == after


def test_all_at_once(log: Log) -> None:
    """A table without indexes is passed over for all deletes together, where the server has temporary tables of that kind."""
    log.write(1, *inserts(LINES), *inserts(LINES[:2]))
    target = log.target()
    found = delete_equal(target, WORK, LINES[:7])
    if log.server.kind == "tidb":
        assert (found, KeylessTable(target, WORK)._is_scanned()) == (None, False)
        return
    assert KeylessTable(target, WORK)._is_scanned()
    assert found == {line: 1 + (line in LINES[:2]) for line in LINES[:7]}
    assert log.rows().total() == len(LINES) - 7
    log.server.query("ALTER TABLE shop.log ADD KEY (i)")
    assert not KeylessTable(target, WORK)._is_scanned()


def test_columns_that_rows_do_not_tell(log: Log) -> None:
    """Where the table has a column that is not written, equal rows may differ in it: they are deleted one by one."""
    log.server.query("ALTER TABLE shop.log ADD own INT DEFAULT 7")
    assert not KeylessTable(log.target(), WORK)._is_scanned()
    log.write(1, *inserts(LINES))
    log.write(2, *deletes(LINES))
    assert not log.rows()


def test_index(log: Log) -> None:
    """Where the table has an index, deletes go one by one, and the result is the same."""
    log.server.query("ALTER TABLE shop.log ADD KEY (i)")
    log.write(1, *inserts(LINES), *inserts(LINES))
    log.write(2, *deletes(LINES), *deletes(LINES))
    assert not log.rows()


def test_another_form(log: Log) -> None:
    """A delete that has a value in another form finds its row among many others, also one that was only just inserted."""
    stored, other = LINES[0], LINES[0].replace(b'{"a": 1}', b'{"a":1}').replace(b"\t0.1\t", b"\t1e-1\t")
    log.write(1, *inserts(LINES))
    log.write(2, *deletes([other, *LINES[1:]]))
    assert not log.rows()
    groups = [(3, inserts([stored])), (4, deletes([other]))]
    assert KeylessTable(log.target(), WORK).write(as_events(*groups)) == 2
    assert not log.rows()


@pytest.mark.parametrize("after", [[], [LINES[0]]])
def test_missing_among_many(log: Log, after: list[bytes]) -> None:
    """A delete that finds no row is named by its commit ts, also among many and if its row comes later; all others stay undone."""
    log.write(1, *inserts(LINES[1:]))
    before = log.rows()
    groups = [(2, deletes(LINES[1:])), (3, deletes(LINES[:1])), (4, inserts(after))]
    with pytest.raises(RowRefused, match="commit ts 3"):
        KeylessTable(log.target(), WORK).write(as_events(*groups))
    assert log.rows() == before


def test_without_the_privilege(log: Log) -> None:
    """A user who may make no temporary tables has the same result."""
    log.server.query("CREATE USER IF NOT EXISTS plain@'%'")
    log.server.query("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO plain@'%'")
    log.write(1, *inserts(LINES), *inserts(LINES[:2]))
    log.write(2, *deletes(LINES), target=log.target(user="plain"))
    assert log.rows().total() == 2
    log.server.query("DROP USER plain@'%'")


def test_sequence(log: Log) -> None:
    """Rows that are inserted, deleted and inserted again over several commits are there as often as they should be."""
    first, second = LINES[0], LINES[5]
    groups = [
        (1, inserts([first, first, second])),
        (2, [*deletes([first, second]), *inserts([second])]),
        (3, deletes([second])),
        (4, inserts([second, second])),
    ]
    assert KeylessTable(log.target(), WORK).write(as_events(*groups)) == 9
    assert log.rows().total() == 3
    assert KeylessTable(log.target(), WORK).write(as_events(*groups, (5, deletes([first])))) == 1
    assert log.rows().total() == 2


def test_rows_that_are_one_to_the_server(log: Log) -> None:
    """Deletes of two lines that the server takes for one value find two rows, and all others go with them."""
    zeros = [LINES[0].replace(b"\t0.1\t", b"\t0\t"), LINES[0].replace(b"\t0.1\t", b"\t-0\t")]
    log.write(1, *inserts(LINES), *inserts(zeros))
    log.write(2, *deletes(LINES[1:]), *deletes(zeros))
    assert log.rows().total() == 1


def test_members_that_the_target_keeps_as_text(log: Log) -> None:
    """Where the target's column holds a member's name as text, the rows of that name go and the others stay."""
    log.server.query("ALTER TABLE shop.log MODIFY e VARCHAR(9)")
    first = [b"%d\ta\tx\t0.1\t{}\t\t7\ta\t2024-01-01 00:00:00.123" % n for n in range(2 * FEW)]
    second = [line.replace(b"\t7\ta\t", b"\t7\tB\t") for line in first]
    log.write(1, *inserts(second))
    stay = Counter(log.server.query("SELECT i, e FROM shop.log"))
    log.write(2, *inserts(first))
    log.write(3, *deletes(first))
    assert Counter(log.server.query("SELECT i, e FROM shop.log")) == stay


def test_another_form_that_comes_back(log: Log) -> None:
    """A delete among many that has a value in another form finds its row, though the line that it has is inserted behind it."""
    other = LINES[0].replace(b'{"a": 1}', b'{"a":1}')
    log.write(1, *inserts(LINES))
    groups = [(2, deletes([other, *LINES[1:]])), (3, inserts([other]))]
    assert KeylessTable(log.target(), WORK).write(as_events(*groups)) == len(LINES) + 1
    assert log.rows().total() == 1


def test_limit_of_a_transaction(log: Log) -> None:
    """A transaction stays far below what the server replicates in one transaction."""
    if log.server.kind == "tidb":
        return
    (_, before), *_ = log.server.query("SHOW GLOBAL VARIABLES LIKE 'max_binlog_cache_size'")
    log.server.query("SET GLOBAL max_binlog_cache_size = 1048576")
    assert KeylessTable(log.target(), WORK)._most_bytes() == 1 << 18
    log.server.query(f"SET GLOBAL max_binlog_cache_size = {before}")
    assert KeylessTable(log.target(), WORK)._most_bytes() == MANY_BYTES


def long_history() -> list[Group]:
    """Inserts and deletes of a few rows over many commit ts, in which each delete finds its row."""
    chance, there = random.Random(3), Counter(LINES)  # noqa: S311 - data, not a secret
    groups: list[Group] = [(1, inserts(LINES))]
    for ts in range(2, 800):
        gone = chance.sample(list(there.elements()), min(there.total(), chance.randrange(4)))
        come = chance.choices(LINES, k=chance.randrange(4))
        there = there - Counter(gone) + Counter(come)
        groups.append((ts, [*deletes(gone), *inserts(come)]))
    return groups


def left_of(groups: list[Group]) -> Counter[bytes]:
    """The rows that events leave behind in an empty table."""
    left = Counter(line for _, events in groups for upsert, line in events if upsert)
    left.subtract(line for _, events in groups for upsert, line in events if not upsert)
    return left


def write_in_small_portions(spec: JobSpec, groups: list[Group]) -> None:
    """What a task does."""
    target = FencedConnection(spec, "", 0)
    keyless.FEW_EVENTS, keyless.MANY_BYTES = 5, 4_000
    KeylessTable(RowStatements(target), WORK).write([part for group in groups for part in as_events(group)])
    target.finish()
    target.close()


@pytest.mark.slow
def test_killed_at_any_instant(log: Log) -> None:
    """Whenever tasks that write the same events are killed, the last one leaves behind what the events do, once."""
    groups, started = long_history(), get_context("spawn")
    for _ in range(6):
        before = log.checkpoint()
        task = started.Process(target=write_in_small_portions, args=(log.rig.spec, groups))
        task.start()
        while log.checkpoint() == before and task.is_alive():
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.1))  # noqa: S311 - for a test
        task.kill()
        task.join()
    task = started.Process(target=write_in_small_portions, args=(log.rig.spec, groups))
    task.start()
    task.join()
    found = log.rows()
    log.server.query("TRUNCATE TABLE shop.log")
    log.write(999, *inserts(list(left_of(groups).elements())), target=log.next_window())
    assert log.rows() == found


@pytest.mark.parametrize("most", [1, 1_000, 1 << 20])
def test_any_portions(log: Log, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """However many transactions the events take, and if a writer begins with what another has written, the rows are the same."""
    monkeypatch.setattr(keyless, "FEW_EVENTS", 2)
    monkeypatch.setattr(keyless, "MANY_BYTES", most)
    groups = [(ts, inserts(LINES[ts : ts + 5])) for ts in range(1, 20)]
    groups += [(ts, [*deletes(LINES[ts - 20 : ts - 16]), *inserts([LINES[ts - 20]])]) for ts in range(21, 40)]
    parts = [part for group in groups for part in as_events(group)]
    KeylessTable(log.target(), WORK).write(parts[:23])
    KeylessTable(log.target(), WORK).write(parts)
    found = log.rows()
    log.server.query("TRUNCATE TABLE shop.log")
    log.write(99, *inserts(list(left_of(groups).elements())))
    assert log.rows() == found


def test_checkpoint_moved_by_somebody_else(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stored checkpoint is found between the ends of what a transaction would write, nothing is written."""
    monkeypatch.setattr(keyless, "FEW_EVENTS", 1)

    def parts() -> Iterator[Changes]:
        yield from as_events((1, inserts(LINES[:1])))
        log.server.query(f"UPDATE {log.rig.downstream.state_schema}.table_progress SET checkpoint = 3")
        yield from as_events((2, inserts(LINES[1:2])), (4, inserts(LINES[2:3])))

    with pytest.raises(TargetUnavailable, match="stored checkpoint to 3"):
        KeylessTable(log.target(), WORK).write(parts())
    assert log.rows().total() == 1


def test_a_load_moves_its_own_clock(log: Log) -> None:
    """The rows of a copy are written with the load's clock; the table's checkpoint stays, and a second attempt writes nothing again."""
    load = Load(
        table_key=WORK.table_key, name=NAME, load_id="one", source="file:///copy", phase=LoadPhase.LOADING, parts=2
    )
    log.rig.state.loads.begin([load], by="me")
    copied = replace(WORK, origin=1)
    events = as_events((clock_of(1, 1), inserts(LINES[:1])), (clock_of(1, 2), inserts(LINES[:1])))
    assert KeylessTable(log.target(), copied).write(events) == 2
    assert (log.checkpoint(), log.rig.state.loads.clocks([WORK.table_key])) == (0, {WORK.table_key: clock_of(1, 2)})
    more = as_events((clock_of(1, 2), inserts(LINES[:1])), (clock_of(2, 1), inserts(LINES[1:2])))
    assert KeylessTable(log.next_window(), copied).write(more) == 1
    assert sum(log.rows().values()) == 3
