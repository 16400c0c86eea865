"""What every writer of rows does: the twin in memory, and the real one on every server."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.decode.values import WireKind
from storage_consumer.errors import LeaseLost, RowRefused, TargetUnavailable
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.rows.halves import RowWriter
from storage_consumer.rows.row_keys import Action, Run
from storage_consumer.rows.spec import Fold, JobSpec, Mode, TablePlan, WireColumn
from storage_consumer.target import apply_rows as rows_module
from storage_consumer.target.apply_rows import RowStatements
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.target.keyless import KeylessTable
from storage_consumer.target.transaction import CONFLICT_TRIES, FencedConnection
from tests.contract.state_rigs import BUCKET, fenced_spec
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock
from tests.harness.twins.writer import FencedWriter
from tests.unit.halves import NAME, as_events, as_runs, table

Image = tuple[str | None, ...]
KEYLESS = table(Mode.KEYLESS)
REPLACING = replace(
    KEYLESS,
    replaces=True,
    versions={place: replace(version, unique=((0,),)) for place, version in KEYLESS.versions.items()},
)


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
        self.state.lease.acquire("me", 30)
        window = self.state.lease.open_window(1, 0)
        self.spec = fenced_spec(self.downstream, epoch=self.state.lease.epoch, window_id=window)

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
    columns = tuple(TargetColumn(name=name, data_type="varchar", nullable=True, pads=True) for name in ("c0", "c1"))
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


IN_BULK = "mariadb, few rows in bulk too"
"""As `mariadb`, where bulk statements are used for any number of rows."""


def server_of(kind: str, request: pytest.FixtureRequest) -> DatabaseServer:
    """The server of one of `KINDS`, or `IN_BULK`."""
    if kind == IN_BULK:
        request.getfixturevalue("monkeypatch").setattr(rows_module, "is_many", bool)
    found: DatabaseServer = request.getfixturevalue("mariadb" if kind == IN_BULK else kind)
    return found


@pytest.fixture(params=["memory", *(pytest.param(kind, marks=pytest.mark.server) for kind in (*KINDS, IN_BULK))])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """What makes each rig."""
    made: list[Rig] = []

    def new(*unique: str) -> Rig:
        if request.param == "memory":
            made.append(memory_rig(*unique))
        else:
            made.append(real_rig(server_of(request.param, request), *unique))
        return made[-1]

    yield new
    for rig in made:
        rig.close()


def test_rows_go_by_all_unique_keys(make: Make) -> None:
    """A value goes on from row to row, NULLs are in nobody's way, and deletes go first, by the first key (C15, C16)."""
    rig = make("c0", "c1")
    work = replace(table(), has_other_unique_keys=True)
    rig.writer().write_runs(work, as_runs([], [b"a\t1", b"b\t2", b"c\t\\N", b"d\t\\N", b"e\t5"]))
    rig.writer().write_runs(work, as_runs([b"d", b"e"], [b"a\t2", b"b\t5", b"f\t1"]))
    assert rig.rows() == Counter({("a", "2"): 1, ("b", "5"): 1, ("c", None): 1, ("f", "1"): 1})


@pytest.mark.parametrize("action", [Action.INSERT, Action.REPLACE])
def test_no_row_takes_the_place_of_another(make: Make, action: Action) -> None:
    """A row in whose way another one is stays out while that may be about to go; where it stays, the error names both."""
    rig = make("c0", "c1")
    work = replace(table(), has_other_unique_keys=True)
    rig.writer().write_runs(work, as_runs([], [b"a\t1", b"b\t2"]))
    runs = [Run(action, [b"c\t3", b"d\t1", b"b\t4", b"e\t5"])]
    with pytest.raises(RowRefused, match=r"d.*1.*a.*1"):
        rig.writer().write_runs(work, runs)
    assert rig.rows() == Counter({("a", "1"): 1, ("b", "2"): 1})
    rig.spec = replace(rig.spec, partitions=2)
    for _ in range(2):
        assert rig.writer().write_runs(work, runs)[:2] == (3, 1)
        assert rig.rows() == Counter({("a", "1"): 1, ("b", "4"): 1, ("c", "3"): 1, ("e", "5"): 1})
    with pytest.raises(RowRefused, match=r"d.*1.*a.*1"):
        rig.writer().write_runs(replace(work, is_settled=True), runs)


@pytest.mark.parametrize("action", [Action.INSERT, Action.REPLACE])
def test_a_blocked_row_makes_way_itself(make: Make, action: Action) -> None:
    """What the target holds of a blocked row goes all the same, so that rows of other tasks find the way free."""
    rig = make("c0", "c1")
    work = replace(table(), has_other_unique_keys=True)
    rig.writer().write_runs(work, as_runs([], [b"a\t1", b"b\t2"]))
    rig.spec = replace(rig.spec, partitions=2)
    assert rig.writer().write_runs(work, [Run(action, [b"a\t2"])])[:2] == (0, 1)
    assert rig.writer().write_runs(work, [Run(action, [b"b\t1"])])[:2] == (1, 0)
    assert rig.writer().write_runs(replace(work, is_settled=True), [Run(action, [b"a\t2"])])[:2] == (1, 0)
    assert rig.rows() == Counter({("a", "2"): 1, ("b", "1"): 1})


PADDED = replace(table(), key=(replace(table().key[0], fold=Fold.PAD),))


def test_spellings_that_the_target_finds_equal(make: Make) -> None:
    """A row that came into being takes no other spelling's place, nor does one that also went take that with it; an update finds its row."""
    rig = make("c0")
    rig.writer().write_runs(PADDED, as_runs([], [b"a\t1"]))
    with pytest.raises(RowRefused, match=r"'a '.*'a'"):
        rig.writer().write_runs(PADDED, [Run(Action.INSERT, [b"b\t1", b"a \t2"])])
    with pytest.raises(RowRefused, match=r"'c  '.*'c'"):
        rig.writer().write_runs(PADDED, [Run(Action.INSERT, [b"c\t1", b"c  \t2"])])
    rig.writer().write_runs(PADDED, [Run(Action.REMOVE, [b"a "])])
    assert rig.rows() == Counter({("a", "1"): 1})
    for _ in range(2):
        rig.writer().write_runs(PADDED, [Run(Action.DELETE, [b"a"]), Run(Action.INSERT, [b"a \t2"])])
        assert rig.rows() == Counter({("a ", "2"): 1})
    rig.writer().write_runs(PADDED, [Run(Action.REPLACE, [b"a\t3"])])
    assert rig.rows() == Counter({("a", "3"): 1})
    rig.writer().write_runs(PADDED, [Run(Action.INSERT, [b"a\t4"])])
    rig.writer().write_runs(PADDED, [Run(Action.REMOVE, [b"a"])])
    assert rig.rows() == Counter()


@pytest.mark.parametrize("has_more_keys", [False, True])
@pytest.mark.parametrize("order", [(Action.INSERT, Action.REPLACE), (Action.REPLACE, Action.INSERT)])
def test_an_update_takes_no_place_of_a_row_that_came_beside_it(
    make: Make, order: Sequence[Action], *, has_more_keys: bool
) -> None:
    """Where the source holds both in the end, and the target finds their keys equal, neither goes without a word."""
    rig = make("c0", "c1")
    work = replace(PADDED, has_other_unique_keys=has_more_keys)
    rig.writer().write_runs(work, as_runs([], [b"a\t1"]))
    lines = {Action.INSERT: b"a \t2", Action.REPLACE: b"a\t3"}
    runs = [Run(action, [lines[action]]) for action in order]
    with pytest.raises(RowRefused, match=r"'a ?'.*'a ?'"):
        rig.writer().write_runs(work, runs)
    assert rig.rows() == Counter({("a", "1"): 1})
    # Whoever else writes: all spellings of a key are of one task.
    rig.spec = replace(rig.spec, partitions=2)
    with pytest.raises(RowRefused, match=r"'a ?'.*'a ?'"):
        rig.writer().write_runs(work, runs)


@pytest.mark.parametrize("has_more_keys", [False, True])
def test_a_row_waits_for_no_other_spelling_of_its_key(make: Make, *, has_more_keys: bool) -> None:
    """Where the source held both for a while, and the former one went, that one's delete takes no other with it."""
    rig = make("c0", "c1")
    rig.spec = replace(rig.spec, partitions=2)
    work = replace(PADDED, has_other_unique_keys=has_more_keys)
    rig.writer().write_runs(work, as_runs([], [b"a\t1"]))
    with pytest.raises(RowRefused, match=r"'a '.*'a'"):
        rig.writer().write_runs(work, [Run(Action.INSERT, [b"a \t2"]), Run(Action.DELETE, [b"a"])])


@pytest.mark.server
@pytest.mark.parametrize("action", [Action.INSERT, Action.REPLACE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_row_beside_one_that_is_there_already(
    kind: str, action: Action, request: pytest.FixtureRequest
) -> None:
    """What a process that was killed has written is no reason to refuse it, whatever else of the same statement the target refuses."""
    rig = real_rig(server_of(kind, request), "c0", "c1")
    request.addfinalizer(rig.close)
    work, long = replace(table(), has_other_unique_keys=True), b"b\t" + b"y" * 21
    rig.writer().write_runs(work, as_runs([], [b"a\t1"]))
    with pytest.raises(RowRefused, match="c0 = 'b'") as raised:
        rig.writer().write_runs(work, [Run(action, [b"a\t1", long, b"c\t3"])])
    assert (raised.value.line, raised.value.content_error) == (long, 1406)


@pytest.mark.server
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_the_error_value_of_an_enum_that_is_in_anothers_way(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The refusal names both rows, though strict mode refuses the value; where the way is free the row has it."""
    server = server_of(kind, request)
    rig = real_rig(server, "c0", "c1")
    request.addfinalizer(rig.close)
    server.query("ALTER TABLE shop.orders ADD COLUMN e ENUM('x')")
    written = (*table().written, WireColumn(name="e", kind=WireKind.UNSIGNED, type="ENUM"))
    work = replace(table(), written=written, has_other_unique_keys=True)
    rig.writer().write_runs(work, as_runs([], [b"a\t1\t1"]))
    with pytest.raises(RowRefused, match=r"c0 = 'b'.*holds the row with c0 = 'a'"):
        rig.writer().write_runs(work, as_runs([], [b"b\t1\t0"]))
    rig.writer().write_runs(work, as_runs([], [b"a\t2\t0"]))
    assert server.query("SELECT c0, c1, e + 0 FROM shop.orders") == (("a", "2", 0),)


def test_keyless_rows_take_no_place_that_is_only_equal_to_the_target(make: Make) -> None:
    """A row of a table without a key takes the place of one that holds the same to the last byte, and of no other."""
    rig = make("c0")
    rig.writer().write_events(REPLACING, as_events((5, [(True, b"a\t1")])))
    with pytest.raises(RowRefused, match=r"'a '.*'a'"):
        rig.writer().write_events(REPLACING, as_events((6, [(True, b"b\t1"), (True, b"a \t2")])))
    assert rig.rows() == Counter({("a", "1"): 1})


def test_runs_go_in_their_order(make: Make) -> None:
    """Runs are written one after another, so that a key may go and come again."""
    rig = make("c0", "c1")
    rig.writer().write_runs(
        table(), [*as_runs([], [b"a\t1", b"b\t2"]), *as_runs([b"a", b"x"], [b"a\t3"]), *as_runs([b"b"], [])]
    )
    assert rig.rows() == Counter({("a", "3"): 1})


def test_events_once(make: Make) -> None:
    """A keyless table's events are written as often as they are, and not again at or below the stored checkpoint (U8)."""
    rig = make()
    events: list[tuple[int, list[tuple[bool, bytes]]]] = [
        (5, [(True, b"a\t1")] * 2),
        (6, [(False, b"a\t1"), (True, b"b\t\\N")]),
    ]
    for _ in range(2):
        rig.writer().write_events(KEYLESS, as_events(*events))
        assert rig.rows() == Counter({("a", "1"): 1, ("b", None): 1})
    restart, _ = rig.state.progress.load()
    assert restart.tables == {KEYLESS.table_key: 6}


class Cut(FencedConnection):
    """A connection that breaks before its statement with some number."""

    def __init__(self, spec: JobSpec, number: int, before: Callable[[], None]) -> None:
        """`before`: called before each statement."""
        super().__init__(spec, "", 0)
        self.came, self._number, self._before = 0, number, before

    def query(self, sql: str) -> int:
        """Run one statement, or the end of the connection."""
        self.came += 1
        self._before()
        if self.came == self._number:
            self.live()._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined] # not in the stubs
        return super().query(sql)


@pytest.mark.server
@pytest.mark.parametrize("kind", [*KINDS, IN_BULK])
def test_cut_at_every_statement(kind: str, request: pytest.FixtureRequest) -> None:
    """A delete and an insert of one commit ts are seen both or not at all, and done once, wherever the connection ends (O14)."""
    rig = real_rig(server_of(kind, request))
    rig.writer().write_events(KEYLESS, as_events((1, [(True, b"a\t1")])))
    seen: list[Counter[Image]] = []
    for number in range(2, 30):
        target = Cut(rig.spec, number, lambda: seen.append(rig.rows()))
        moved = [(False, f"a\t{number - 1}".encode()), (True, f"a\t{number}".encode())]
        KeylessTable(RowStatements(target), KEYLESS).write(as_events((number, moved)))
        target.close()
        assert rig.rows() == Counter({("a", str(number)): 1})
        if target.came < number:
            break
    assert number > 5
    assert [rows.total() for rows in seen] == [1] * len(seen)
    rig.close()


@pytest.mark.server
@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "tidb"), IN_BULK])
def test_deadlocks(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fifty deadlocks in a row each is tried again; where a try gives up, neither rows nor checkpoint are there (O13)."""
    server = server_of(kind, request)
    rig = real_rig(server)
    server.query(
        "CREATE TRIGGER shop.busy BEFORE INSERT ON shop.orders FOR EACH ROW IF COALESCE(@tries, 0) < 50 THEN "
        "SET @tries = COALESCE(@tries, 0) + 1; SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'no'; END IF"
    )
    monkeypatch.setattr(time, "sleep", lambda _: None)
    writer = rig.writer()
    for _ in range(50 // CONFLICT_TRIES):
        with pytest.raises(TargetUnavailable, match="1213"):
            writer.write_events(KEYLESS, as_events((5, [(True, b"a\t1"), (True, b"a\t1")])))
        assert (rig.rows(), rig.state.progress.load()[0].tables) == (Counter(), {})
    writer.write_events(KEYLESS, as_events((5, [(True, b"a\t1"), (True, b"a\t1")])))
    assert (rig.rows(), rig.state.progress.load()[0].tables) == (Counter({("a", "1"): 2}), {KEYLESS.table_key: 5})
    rig.close()


def test_delete_has_to_find_its_row(make: Make) -> None:
    """A keyless table's delete that finds no row is refused; NULL finds NULL."""
    rig = make()
    rig.writer().write_events(KEYLESS, as_events((5, [(True, b"b\t\\N")]), (6, [(False, b"b\t\\N")])))
    with pytest.raises(RowRefused, match="commit ts 7"):
        rig.writer().write_events(KEYLESS, as_events((7, [(False, b"b\t\\N")])))
    assert rig.rows() == Counter()


def test_keyless_rows_replace_by_unique_keys(make: Make) -> None:
    """Where a keyless table has a unique key that may be NULL, a row takes the place of the one that shares it."""
    rig = make("c0")
    rows = [(True, b"a\t1"), (True, b"\\N\t1"), (True, b"\\N\t1")]
    rig.writer().write_events(REPLACING, as_events((5, rows), (6, [(True, b"a\t2")])))
    assert rig.rows() == Counter({("a", "2"): 1, (None, "1"): 2})


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("other", ["window", "owner"])
def test_closed_window(make: Make, other: str, *, keyed: bool) -> None:
    """A writer of a window that is closed, or of another owner, writes nothing."""
    rig = make("c0") if keyed else make()
    work: TablePlan = table() if keyed else KEYLESS
    late = rig.writer() if other == "window" else rig.writer(epoch=rig.spec.epoch + 1)
    if other == "window":
        rig.state.lease.open_window(0, 0)
    with pytest.raises(LeaseLost, match="is closed"):
        late.write_runs(work, as_runs([], [b"a\t1"])) if keyed else late.write_events(
            work, as_events((5, [(True, b"a\t1")]))
        )
    assert rig.rows() == Counter()


# large rows


@dataclass(frozen=True, slots=True)
class LargeRows:
    """``shop.orders`` with large columns, on a server whose max_allowed_packet can be set."""

    server: DatabaseServer
    rig: Rig

    def writer(self, packet: int, *, load_data: bool) -> TargetWriter:
        """A writer of the window that is open, for which the server takes statements up to `packet`."""
        self.server.query(f"SET GLOBAL max_allowed_packet = {packet}")
        self.server.query("DELETE FROM shop.orders")
        found: TargetWriter = self.rig.new(replace(self.rig.spec, load_data=load_data, max_packet=packet))
        self.rig._stack.callback(found.close)
        return found

    def sizes(self) -> dict[str, int]:
        """Key → bytes of the row's other column."""
        return dict(self.server.query("SELECT c0, LENGTH(c1) FROM shop.orders"))


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.server) for kind in ("mariadb", "mysql", IN_BULK)])
def large(request: pytest.FixtureRequest) -> Iterator[LargeRows]:
    """Servers with such a limit that can be set, in turn."""
    server = server_of(request.param, request)
    ((before,),) = server.query("SELECT @@GLOBAL.max_allowed_packet")
    rig = real_rig(server, "c0")
    server.query("ALTER TABLE shop.orders MODIFY c1 LONGTEXT")
    yield LargeRows(server, rig)
    rig.close()
    server.query(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.slow
@pytest.mark.parametrize("load_data", [True, False])
def test_row_of_64_mb(large: LargeRows, load_data: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """A row of 64 MB goes in among small ones, by LOAD DATA and by literals, where max_allowed_packet leaves room for it."""
    rows = [b"a\t1", f"b\t{'y' * (64 << 20)}".encode(), b"c\t3"]
    large.writer(1 << 27, load_data=load_data).write_runs(table(), as_runs([], rows))
    assert large.sizes() == {"a": 1, "b": 64 << 20, "c": 1}


def test_load_data_heeds_no_limit_but_that_of_packets(large: LargeRows) -> None:
    """LOAD DATA takes rows in packets that any server accepts, so that neither many rows nor one large one are too much for it."""
    rows = [f"{key}\t{'y' * (300 << 10)}".encode() for key in range(20)]
    for packet in (1 << 20, 1 << 10):
        large.writer(packet, load_data=True).write_runs(table(), as_runs([], [*rows, f"b\t{'y' * (3 << 20)}".encode()]))
        assert sum(large.sizes().values()) == (20 * 300 << 10) + (3 << 20)


@pytest.mark.slow
def test_row_larger_than_the_server_takes(large: LargeRows) -> None:
    """A row whose statement the server would break the connection for is refused before: key, sizes and way on, no value (P10)."""
    message = (
        r"shop.orders: the target refused the row with c0 = 'b': it needs a statement of 671089\d\d bytes, but the server's max_allowed_packet is "
        r"1048576 bytes. Raise that limit \(SET GLOBAL max_allowed_packet = 68157440, .*, then start again"
    )
    with pytest.raises(RowRefused, match=message) as raised:
        large.writer(1 << 20, load_data=False).write_runs(
            table(), as_runs([], [b"a\t1", f"b\t{'y' * (64 << 20)}".encode()])
        )
    assert len(str(raised.value)) < 400
    large.writer(68157440, load_data=False).write_runs(
        table(), as_runs([], [b"a\t1", f"b\t{'y' * (64 << 20)}".encode()])
    )
    assert large.sizes() == {"a": 1, "b": 64 << 20}


def test_large_bytes(large: LargeRows) -> None:
    """Bytes, which LOAD DATA gets in hexadecimal digits, go in by it whatever the limit is."""
    large.server.query("ALTER TABLE shop.orders MODIFY c1 LONGBLOB")
    written = (table().written[0], replace(table().written[1], kind=WireKind.HEX, type="LONGBLOB"))
    rows = [b"a\t31", f"b\t{'31' * (2 << 20)}".encode()]
    large.writer(1 << 20, load_data=True).write_runs(replace(table(), written=written), as_runs([], rows))
    assert large.sizes() == {"a": 1, "b": 2 << 20}


def test_large_row_without_a_key(large: LargeRows) -> None:
    """A keyless table's row is deleted by all its values: one too large for that halts the table with the beginning of its values."""
    with pytest.raises(RowRefused, match=r"row with c0 = 'b', c1 = 'y{59}…: .*SET GLOBAL max_allowed_packet") as raised:
        large.writer(1 << 20, load_data=False).write_events(
            KEYLESS, as_events((5, [(False, f"b\t{'y' * (2 << 20)}".encode())]))
        )
    assert len(str(raised.value)) < 400


def test_statements_just_below_the_limit(large: LargeRows) -> None:
    """The largest statement that is tried is one that the server takes."""
    shorter = len("REPLACE INTO `shop`.`orders` (`c0`, `c1`) VALUES ('b','')")
    writer = large.writer(1 << 20, load_data=False)
    assert writer.write_runs(table(), as_runs([], [f"b\t{'y' * ((1 << 20) - 2 - shorter)}".encode()])).rows == 1
    with pytest.raises(
        RowRefused, match="a statement of 1048575 bytes, but the server's max_allowed_packet is 1048576 bytes"
    ):
        writer.write_runs(table(), as_runs([], [f"b\t{'y' * ((1 << 20) - 1 - shorter)}".encode()]))


if "tidb" in KINDS:  # else there is no server to try it on

    @pytest.mark.server
    @pytest.mark.parametrize("load_data", [True, False])
    def test_row_over_6_mib_at_a_tidb(tidb: DatabaseServer, load_data: bool) -> None:  # noqa: FBT001 - pytest gives it by name
        """Such a row is written, whatever the limit of all sessions is; where the server takes none, the error names the settings."""
        rig = real_rig(tidb, "c0")
        tidb.query("ALTER TABLE shop.orders MODIFY c1 LONGTEXT")
        rig.spec = replace(rig.spec, load_data=load_data, max_packet=1 << 26)
        rig.writer().write_runs(table(), as_runs([], [f"a\t{'y' * (7 << 20)}".encode(), b"b\t1"]))
        assert tidb.query("SELECT c0, LENGTH(c1) FROM shop.orders") == (("a", 7 << 20), ("b", 1))
        lower = FencedConnection(rig.spec, "", 0)
        lower.query("SET SESSION tidb_txn_entry_size_limit = 0")
        with pytest.raises(RowRefused, match=r"c0 = 'c': error 8025: .*txn-entry-size-limit.*raft-entry-max-size"):
            lower.transaction(
                table(),
                lambda: RowStatements(lower).put(table(), (), [f"c\t{'y' * (7 << 20)}".encode()], is_settled=True),
            )
        lower.close()
        rig.close()
