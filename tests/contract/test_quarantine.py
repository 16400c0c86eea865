"""The quarantine on every server: a refused row goes aside in the transaction of its neighbours, and what comes later replaces it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.decode.values import Spelling, ValueForm, WireKind
from storage_consumer.errors import RowRefused
from storage_consumer.model import CommitRange, DdlKind, TableName
from storage_consumer.plan.loads import Load, LoadPhase
from storage_consumer.plan.steps import DdlStep
from storage_consumer.rows.spec import Fold, JobSpec, KeyPart, Mode, Quarantine, RowPlace, TablePlan, WireColumn
from storage_consumer.target.bucket_writer import TargetWriter
from tests.contract.state_rigs import BUCKET, fenced_spec, statement
from tests.harness.servers import KINDS, DatabaseServer
from tests.unit.halves import as_runs

pytestmark = pytest.mark.server

_KEY = WireColumn(name="id", kind=WireKind.TEXT, type="DECIMAL")
WORK = TablePlan(
    index=0,
    table_key="`shop`.`t`",
    name=TableName(schema="shop", table="t"),
    commit_range=CommitRange(low=0, high=100),
    mode=Mode.KEYED,
    has_other_unique_keys=True,
    written=(
        _KEY,
        WireColumn(name="v", kind=WireKind.TEXT, type="VARCHAR"),
        WireColumn(name="n", kind=WireKind.TEXT, type="INT"),
    ),
    key=(KeyPart(column=_KEY, fold=Fold.EXACT, form=Spelling(ValueForm.NUMBER)),),
    versions={},
    version=7,
    quarantine=Quarantine(limit=2, paths=("shop/t/7/CDC000001.csv",)),
)


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """A server with a table that is narrower than the source's."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    found.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    found.query("CREATE TABLE shop.t (id DECIMAL(10, 2) PRIMARY KEY, v VARCHAR(5), n TINYINT NOT NULL, UNIQUE (n))")
    return found


@pytest.fixture
def state(server: DatabaseServer) -> Iterator[StateStore]:
    """The state, with the lease."""
    with closing(StateStore(Downstream(port=server.port), "")) as found:
        found.open(BUCKET)
        found.lease.acquire("me", 30)
        yield found


@pytest.fixture
def open_spec(server: DatabaseServer, state: StateStore) -> Callable[[], JobSpec]:
    """What opens another window."""

    def opened() -> JobSpec:
        return fenced_spec(
            Downstream(port=server.port),
            epoch=state.lease.epoch,
            window_id=state.lease.open_window(1, 0),
            load_data=server.kind != "mysql",
        )

    return opened


Write = Callable[..., list[str]]


@pytest.fixture
def write(open_spec: Callable[[], JobSpec]) -> Write:
    """What writes deletes and upserts in a window of their own; it returns the keys that were quarantined."""

    def written(
        upserts: list[bytes], deletes: list[bytes] | None = None, *, work: TablePlan = WORK, ts: int = 50
    ) -> list[str]:
        with closing(TargetWriter(open_spec(), "", 0)) as writer:
            place = RowPlace(commit_ts=ts, rank=0, row=3)
            _, _, aside = writer.write_runs(work, as_runs(deletes or [], upserts), lambda _: place)
            writer.finish()
            assert not any(row.line for row in aside), "rows do not go to the driver"
            return [row.key for row in aside]

    return written


def truncation(version: int) -> DdlStep:
    """A TRUNCATE of the table."""
    step = statement(table_dir="shop/t", version=version, query="TRUNCATE TABLE `t`")
    return replace(step, definition=replace(step.definition, ddl_type=DdlKind.TRUNCATE_TABLE))


def table(server: DatabaseServer) -> set[tuple[str, ...]]:
    """What the table holds."""
    return {tuple(map(str, row)) for row in server.query("SELECT id, v, n FROM shop.t")}


def entries(server: DatabaseServer, columns: str = "row_key") -> list[tuple[str, ...]]:
    """What the quarantine holds."""
    found = server.query(f"SELECT {columns} FROM storage_consumer.quarantine ORDER BY row_key")
    return [tuple(map(str, row)) for row in found]


AGAIN = replace(WORK, has_entries=True)


def test_the_others_are_written(server: DatabaseServer, write: Write) -> None:
    """A refused row goes aside with its place, its image and what the target held; rows beside it are written, and a repeat changes nothing."""
    write([b"1.00\told\t1"])
    for _ in range(2):
        assert write([b"1.00\ttoo long\t1", b"2.00\tb\t2", b"3.00\tc\t3"], work=AGAIN) == ["id = 1.00"]
        assert table(server) == {("1.00", "old", "1"), ("2.00", "b", "2"), ("3.00", "c", "3")}
        ((image, before),) = entries(server, "image, held_before")
        assert json.loads(image) == {"id": "1.00", "v": "too long", "n": "1"}
        assert json.loads(before) == {"id": "1.00", "v": "old", "n": "1"}
        assert entries(server, "table_key, version, commit_ts, path, row_in_file, error_number") == [
            ("`shop`.`t`", "7", "50", "shop/t/7/CDC000001.csv", "3", "1406")
        ]


@pytest.mark.parametrize("bad", [b"1\ttoo long\t1", b"1\ta\t1000", b"1\ta\t\\N"], ids=["long", "range", "null"])
def test_kinds_of_refusal(server: DatabaseServer, write: Write, bad: bytes) -> None:
    """A value that is too long, out of range, or NULL where there may be none is about the row's content."""
    assert write([bad, b"2\tb\t2"]) == ["id = 1"]
    assert table(server) == {("2.00", "b", "2")}


def test_later_state_removes_the_entry(server: DatabaseServer, write: Write) -> None:
    """Writing or deleting the key removes its entry, however the key is spelled; other entries stay."""
    write([b"1.00\ttoo long\t1", b"2.00\ttoo long\t2"])
    write([b"1\ta\t1"], work=AGAIN)
    assert entries(server) == [("id = 2.00",)]
    write([], [b"2.0"], work=AGAIN)
    assert entries(server) == []
    assert table(server) == {("1.00", "a", "1")}


def test_newer_refused_state_replaces_the_entry(server: DatabaseServer, write: Write) -> None:
    """A key has one entry: that of its newest state."""
    write([b"1.00\ttoo long\t1"])
    write([b"1\ttoo long again\t1"], work=AGAIN, ts=60)
    assert entries(server, "commit_ts, line LIKE '%again%'") == [("60", "1")]


def test_limit(server: DatabaseServer, write: Write) -> None:
    """Beyond the limit nothing of the transaction is written, and the error names the limit; that counts entries of earlier windows too."""
    rows = [b"%d\ttoo long\t%d" % (n, n) for n in range(3)]
    with pytest.raises(RowRefused, match="more than 2 rows"):
        write([*rows, b"9\tb\t9"])
    assert (entries(server), table(server)) == ([], set())
    write(rows[:2])
    with pytest.raises(RowRefused, match="more than 2 rows"):
        write(rows[2:], work=AGAIN)
    assert len(entries(server)) == 2


@pytest.mark.parametrize(
    "work",
    [
        replace(WORK, quarantine=None),
        replace(WORK, mode=Mode.ORDERED),
        replace(WORK, has_commit_ts=False),
        replace(WORK, key=(replace(WORK.key[0], is_lasting=False),)),
    ],
    ids=["off", "collation", "no commit-ts", "float"],
)
def test_what_is_not_quarantined(server: DatabaseServer, write: Write, work: TablePlan) -> None:
    """Without the option, a commit-ts, or a key that can be compared by value, a refused row raises as ever."""
    with pytest.raises(RowRefused, match="too long"):
        write([b"1\ttoo long\t1"], work=work)
    assert entries(server) == []


def test_missing_column_is_not_quarantined(server: DatabaseServer, write: Write) -> None:
    """What is wrong with the table and not with a row raises."""
    server.query("ALTER TABLE shop.t DROP COLUMN v")
    with pytest.raises(RowRefused):
        write([b"1\ta\t1"])
    assert entries(server) == []


def test_refused_rows_among_many(server: DatabaseServer, write: Write) -> None:
    """Refused rows among those of a bulk statement go aside one by one."""
    server.query("ALTER TABLE shop.t MODIFY n INT NOT NULL")
    rows = [b"%d\t%s\t%d" % (n, b"too long" if n in (5, 700) else b"a", n) for n in range(1000)]
    assert sorted(write(rows)) == ["id = 5", "id = 700"]
    assert len(table(server)) == 998


def test_a_shared_transaction_removes_entries(
    server: DatabaseServer, write: Write, open_spec: Callable[[], JobSpec]
) -> None:
    """Tables that are written together remove the entries of their keys as well, those of deleted keys too."""
    write([b"1.00\ttoo long\t1", b"2.00\ttoo long\t2"])
    with closing(TargetWriter(open_spec(), "", 0)) as writer:
        writer.write_together([(AGAIN, as_runs([b"2"], [b"1\ta\t1"]))])
    assert (entries(server), table(server)) == ([], {("1.00", "a", "1")})


def test_a_table_without_entries_costs_no_statement(
    server: DatabaseServer, open_spec: Callable[[], JobSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction of a table that has no entries does not ask for any."""
    asked: list[str] = []
    with closing(TargetWriter(open_spec(), "", 0)) as writer:
        fenced = writer._fenced
        rows, query = fenced.rows, fenced.query

        def noted_rows(sql: str) -> tuple[tuple[Any, ...], ...]:
            asked.append(sql)
            return rows(sql)

        def noted_query(sql: str) -> int:
            asked.append(sql)
            return query(sql)

        monkeypatch.setattr(fenced, "rows", noted_rows)
        monkeypatch.setattr(fenced, "query", noted_query)
        writer.write_runs(WORK, as_runs([], [b"1\ta\t1"]), lambda _: RowPlace(commit_ts=1, rank=0, row=1))
    assert asked
    assert not [sql for sql in asked if "quarantine" in sql]


def test_limit_counts_what_is_left(server: DatabaseServer, write: Write) -> None:
    """Entries that the same transaction removes do not count towards the limit."""
    write([b"1.00\ttoo long\t1", b"2.00\ttoo long\t2"])
    assert write([b"1\ta\t1", b"3\ttoo long\t3"], work=AGAIN) == ["id = 3"]
    assert entries(server) == [("id = 2.00",), ("id = 3",)]


def test_a_former_state_of_a_quarantined_row_makes_way(server: DatabaseServer, write: Write) -> None:
    """What the target holds of a row whose newer state is in the quarantine is in nobody's way, and the entry keeps it."""
    write([b"1.00\told\t1", b"3.00\tc\t3"])
    assert write([b"1.00\ttoo long\t5", b"2.00\tb\t1"]) == ["id = 1.00"]
    assert table(server) == {("2.00", "b", "1"), ("3.00", "c", "3")}
    ((before,),) = entries(server, "held_before")
    assert json.loads(before) == {"id": "1.00", "v": "old", "n": "1"}
    assert write([b"2.00\tb\t7"], work=AGAIN) == []
    with pytest.raises(RowRefused, match=r"id = 4\.00 was not written, .* id = 3\.00"):
        write([b"4.00\td\t3"], work=AGAIN)
    assert table(server) == {("2.00", "b", "7"), ("3.00", "c", "3")}


def test_a_row_too_large_for_the_quarantine(server: DatabaseServer, open_spec: Callable[[], JobSpec]) -> None:
    """A refused row whose entry exceeds the server's packet is an error of its table; it does not end the connection."""
    place = RowPlace(commit_ts=1, rank=0, row=1)
    line = b"1\t%s\t1" % (b"x" * 5_000)
    with closing(TargetWriter(replace(open_spec(), max_packet=8_192), "", 0)) as writer:
        with pytest.raises(RowRefused, match=r"id = 1: .*too long.*max_allowed_packet is 8192") as caught:
            writer.write_runs(WORK, as_runs([], [line, b"2\ta\t2"]), lambda _: place)
        assert (caught.value.line, entries(server), table(server)) == (line, [], set())


def test_a_repeated_attempt_removes_entries_of_the_first(
    server: DatabaseServer, open_spec: Callable[[], JobSpec]
) -> None:
    """Where Spark runs a task again, a row that is accepted by then loses the entry that the first attempt made."""
    place, spec = RowPlace(commit_ts=1, rank=0, row=1), open_spec()
    for accepted in (False, True):
        with closing(TargetWriter(spec, "", 0)) as writer:
            _, _, aside = writer.write_runs(WORK, as_runs([], [b"1\ttoo long\t1"]), lambda _: place)
        assert (len(aside), len(entries(server)), len(table(server))) == ((0, 0, 1) if accepted else (1, 1, 0))
        server.query("ALTER TABLE shop.t MODIFY v VARCHAR(20)")


def test_of_a_copy(server: DatabaseServer, write: Write) -> None:
    """A row of a copy has the copy's TSO in the place of a commit-ts: the load's clock stands for nothing elsewhere."""
    rule = Quarantine(limit=2, paths=("shop.t.000000000.sql",), as_of=70)
    write([b"1\ttoo long\t1"], work=replace(WORK, version=0, quarantine=rule), ts=1 << 32 | 1)
    assert entries(server, "version, commit_ts, path") == [("0", "70", "shop.t.000000000.sql")]


def test_a_load_removes_what_its_copy_holds(server: DatabaseServer, state: StateStore, write: Write) -> None:
    """As it begins, and not when it ends: then the entries may be those of the copy's own rows. Later ones stay."""
    write([b"1\ttoo long\t1"], ts=60)
    write([b"2\ttoo long\t2"], ts=61)
    load = Load(
        table_key=WORK.table_key,
        name=WORK.name,
        load_id="one",
        source="file:///full",
        identity="abc",
        low=60,
        high=60,
        phase=LoadPhase.LOADING,
    )
    state.loads.begin([load], by="me")
    assert entries(server) == [("id = 2",)]
    write([b"3\ttoo long\t3"], work=replace(WORK, quarantine=Quarantine(limit=2, paths=("",), as_of=60)))
    assert state.loads.finish(load) == ""
    assert entries(server) == [("id = 2",), ("id = 3",)]


def test_a_statement_that_a_copy_holds_leaves_its_refused_rows(
    server: DatabaseServer, state: StateStore, write: Write
) -> None:
    """A TRUNCATE that is in the copy is recorded after the copy was written: what was refused of the copy is no row that it removed."""
    write([b"1\ttoo long\t1"], ts=40)
    write([b"2\ttoo long\t2"], work=replace(WORK, quarantine=Quarantine(limit=9, paths=("",), as_of=60)))
    state.journal.copied(truncation(60), 60)
    assert entries(server) == [("id = 2",)]
    write([b"1\ttoo long\t1"], ts=40)
    state.journal.copied(truncation(50), 60)
    assert entries(server) == [("id = 2",)]


def test_a_statement_removes_no_later_rows(server: DatabaseServer, state: StateStore, write: Write) -> None:
    """One that an operator calls done may be older than refused rows of its table; those up to its version, inclusive, are gone."""
    write([b"1\ttoo long\t1"], ts=50)
    write([b"2\ttoo long\t2"], ts=51)
    state.journal.record(truncation(50), "done")
    assert entries(server) == [("id = 2",)]
