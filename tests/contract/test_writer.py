"""What every writer of rows does: the twin in memory, and the real one on every server."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.errors import LeaseLost, RowRefused, TargetUnavailable
from storage_consumer.pipeline import RowWriter
from storage_consumer.target.state import StateStore
from storage_consumer.target.writer import CONFLICT_TRIES, TargetWriter
from storage_consumer.testing import FakeClock
from storage_consumer.testing_state import MemoryState, TargetRecords
from storage_consumer.testing_writer import FencedWriter
from storage_consumer.work import JobSpec, Mode, TableWork, TargetColumn, TargetTable, UniqueKey
from tests.contract.state_rigs import BUCKET
from tests.servers import KINDS, DatabaseServer
from tests.unit.halves import NAME, table

Image = tuple[str | None, ...]
KEYLESS = table(Mode.KEYLESS)


@dataclass
class Rig:
    """A target with the table of `tests.unit.test_pipeline`."""

    state: StateStore | MemoryState
    new: Callable[[JobSpec], Any]
    rows: Callable[[], Counter[Image]]
    downstream: Downstream = field(default_factory=Downstream)
    _stack: ExitStack = field(default_factory=ExitStack)
    spec: JobSpec = field(init=False)

    def __post_init__(self) -> None:
        """Get the lease and open a window."""
        self.state.open(BUCKET)
        self.state.acquire("me", 30)
        self.spec = JobSpec(
            upstream=Upstream(scheme="file", root="/bucket", protocol="csv"),
            downstream=self.downstream,
            secrets_file="",
            tables=(),
            partitions=1,
            epoch=self.state.epoch,
            window_id=self.state.open_window(1, 0),
            load_data=False,
            max_packet=1 << 24,
        )

    def writer(self, *, epoch: int = 0) -> RowWriter:
        """A writer of the window that was opened here, or of one of another epoch; closed at the end."""
        found: RowWriter = self.new(replace(self.spec, epoch=epoch or self.spec.epoch))
        if isinstance(found, TargetWriter):
            self._stack.callback(found.close)
        return found

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()
        self.state.close()


def memory_rig(*unique: str) -> Rig:
    """The twin."""
    records = TargetRecords()
    columns = tuple(TargetColumn(name=name, data_type="varchar", nullable=True) for name in ("c0", "c1"))
    keys = tuple(UniqueKey(name=name, columns=(name,), prefixes=(None,)) for name in unique)
    records.structures[NAME] = TargetTable(name=NAME, columns=columns, unique_keys=keys)

    def rows() -> Counter[Image]:
        return Counter(tuple(row.values()) for row in records.rows.get(NAME, ()))

    return Rig(MemoryState(records, FakeClock()), lambda spec: FencedWriter(records, spec), rows)


def real_rig(server: DatabaseServer, *unique: str) -> Rig:
    """The real one."""
    keys = "".join(f", UNIQUE KEY ({name})" for name in unique)
    server.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    server.query(f"CREATE TABLE shop.orders (c0 VARCHAR(20), c1 VARCHAR(20){keys})")
    downstream = Downstream(port=server.port)
    return Rig(
        StateStore(downstream, ""),
        lambda spec: TargetWriter(spec, "", 0),
        lambda: Counter(server.query("SELECT c0, c1 FROM shop.orders")),
        downstream,
    )


Make = Callable[..., Rig]
"""Makes a rig whose table has unique keys over the columns of these names, one each."""


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.server) for kind in KINDS)])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """What makes each rig."""
    made: list[Rig] = []

    def new(*unique: str) -> Rig:
        if request.param == "memory":
            made.append(memory_rig(*unique))
        else:
            made.append(real_rig(request.getfixturevalue(request.param), *unique))
        return made[-1]

    yield new
    for rig in made:
        rig.close()


def test_replace_goes_by_all_unique_keys(make: Make) -> None:
    """A row takes the place of all rows that share any of its unique keys, NULLs aside; deletes go by the first key, and first (C15, C16)."""
    rig = make("c0", "c1")
    work = replace(table(), serial=False)
    rig.writer().write_states(work, [], ["a\t1", "b\t2", "c\t\\N", "d\t\\N"])
    rig.writer().write_states(work, ["d"], ["a\t2"])
    assert rig.rows() == Counter({("a", "2"): 1, ("c", None): 1})


def test_runs_go_in_their_order(make: Make) -> None:
    """Runs are written one after another, so that a key may go and come again."""
    rig = make("c0", "c1")
    rig.writer().write_runs(table(), [(True, ["a\t1", "b\t2"]), (False, ["a", "x"]), (True, ["a\t3"]), (False, ["b"])])
    assert rig.rows() == Counter({("a", "3"): 1})


def test_events_once(make: Make) -> None:
    """A keyless table's events are written as often as they are, and not again at or below the stored checkpoint (U8)."""
    rig = make()
    events: list[tuple[int, list[tuple[bool, str]]]] = [
        (5, [(True, "a\t1")] * 2),
        (6, [(False, "a\t1"), (True, "b\t\\N")]),
    ]
    for _ in range(2):
        rig.writer().write_events(KEYLESS, events)
        assert rig.rows() == Counter({("a", "1"): 1, ("b", None): 1})
    restart, _ = rig.state.load()
    assert restart.tables == {KEYLESS.table_key: 6}


class Cut(TargetWriter):
    """A writer whose connection breaks before its statement with some number."""

    def __init__(self, spec: JobSpec, number: int, before: Callable[[], None]) -> None:
        """`before`: called before each statement."""
        super().__init__(spec, "", 0)
        self.came, self._number, self._before = 0, number, before

    def _query(self, sql: str) -> int:
        self.came += 1
        self._before()
        if self.came == self._number:
            self._live()._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined] # not in the stubs
        return super()._query(sql)


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_cut_at_every_statement(kind: str, request: pytest.FixtureRequest) -> None:
    """A delete and an insert of one commit ts are seen both or not at all, and done once, wherever the connection ends (O14)."""
    rig = real_rig(request.getfixturevalue(kind))
    rig.writer().write_events(KEYLESS, [(1, [(True, "a\t1")])])
    seen: list[Counter[Image]] = []
    for number in range(2, 30):
        writer = Cut(rig.spec, number, lambda: seen.append(rig.rows()))
        writer.write_events(KEYLESS, [(number, [(False, f"a\t{number - 1}"), (True, f"a\t{number}")])])
        writer.close()
        assert rig.rows() == Counter({("a", str(number)): 1})
        if writer.came < number:
            break
    assert number > 5
    assert [rows.total() for rows in seen] == [1] * len(seen)
    rig.close()


@pytest.mark.server
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tidb"])
def test_deadlocks(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fifty deadlocks in a row each is tried again; where a try gives up, neither rows nor checkpoint are there (O13)."""
    server: DatabaseServer = request.getfixturevalue(kind)
    rig = real_rig(server)
    server.query(
        "CREATE TRIGGER shop.busy BEFORE INSERT ON shop.orders FOR EACH ROW IF COALESCE(@tries, 0) < 50 THEN "
        "SET @tries = COALESCE(@tries, 0) + 1; SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'no'; END IF"
    )
    monkeypatch.setattr(time, "sleep", lambda _: None)
    writer = rig.writer()
    for _ in range(50 // CONFLICT_TRIES):
        with pytest.raises(TargetUnavailable, match="1213"):
            writer.write_events(KEYLESS, [(5, [(True, "a\t1"), (True, "a\t1")])])
        assert (rig.rows(), rig.state.load()[0].tables) == (Counter(), {})
    writer.write_events(KEYLESS, [(5, [(True, "a\t1"), (True, "a\t1")])])
    assert (rig.rows(), rig.state.load()[0].tables) == (Counter({("a", "1"): 2}), {KEYLESS.table_key: 5})
    rig.close()


def test_delete_has_to_find_its_row(make: Make) -> None:
    """A keyless table's delete that finds no row is refused; NULL finds NULL."""
    rig = make()
    rig.writer().write_events(KEYLESS, [(5, [(True, "b\t\\N")]), (6, [(False, "b\t\\N")])])
    with pytest.raises(RowRefused, match="commit ts 7"):
        rig.writer().write_events(KEYLESS, [(7, [(False, "b\t\\N")])])
    assert rig.rows() == Counter()


def test_keyless_rows_replace_by_unique_keys(make: Make) -> None:
    """Where a keyless table has a unique key that may be NULL, a row takes the place of the one that shares it."""
    rig = make("c0")
    rows = [(True, "a\t1"), (True, "\\N\t1"), (True, "\\N\t1")]
    rig.writer().write_events(replace(KEYLESS, replaces=True), [(5, rows), (6, [(True, "a\t2")])])
    assert rig.rows() == Counter({("a", "2"): 1, (None, "1"): 2})


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("other", ["window", "owner"])
def test_closed_window(make: Make, other: str, *, keyed: bool) -> None:
    """A writer of a window that is closed, or of another owner, writes nothing."""
    rig = make("c0") if keyed else make()
    work: TableWork = table() if keyed else KEYLESS
    late = rig.writer() if other == "window" else rig.writer(epoch=rig.spec.epoch + 1)
    if other == "window":
        rig.state.open_window(0, 0)
    with pytest.raises(LeaseLost, match="is closed"):
        late.write_states(work, [], ["a\t1"]) if keyed else late.write_events(work, [(5, [(True, "a\t1")])])
    assert rig.rows() == Counter()
