"""What every state store does: the twin in memory, and the real one on every server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from storage_consumer.errors import ConfigError, LeaseLost
from storage_consumer.model import DdlId, SkippedRows, TableName
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.finished_files import CHUNK, EVERYTHING, Finished
from storage_consumer.plan.journal_entry import DONE, FAILED, PLANNED, SKIPPED, STARTED, Sent
from tests.contract.state_rigs import BUCKET, Rig, progress, real_rig, statement
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import FakeClock

LAST = (1 << 64) - 1
"""The highest TSO."""
ODD = 'o\'dd "name" %s %% \\ :x `y` 表😀/t:b%(z)s'
"""Everything that a careless statement trips over; a table directory."""
ODD_SCHEMA = "st'ate %s% :x `y`"
SENT = Sent(statement="s", structure_before="before")
NOTHING: dict[str, Any] = {"tables": (), "sequences": {}, "checkpoint": 0, "storage_checkpoint": 0}


@pytest.fixture(
    params=[
        "memory",
        *(pytest.param(kind, marks=pytest.mark.server) for kind in KINDS),
        pytest.param("odd", marks=pytest.mark.server),
    ]
)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Each state in turn; ``odd`` is MariaDB with an odd schema name."""
    if request.param == "memory":
        records, clock = TargetRecords(), FakeClock()
        found = Rig(lambda: MemoryState(records, clock), lambda: clock.advance(31))
    else:
        server = request.getfixturevalue("mariadb" if request.param == "odd" else request.param)
        found = real_rig(server, ODD_SCHEMA if request.param == "odd" else "storage_consumer")
    yield found
    found.close()


def writes(state: Any) -> list[Callable[[], object]]:
    """Every call that only the owner may make."""
    return [
        lambda: state.progress.save(
            tables=[progress("a/b", 9)], sequences={"s": Finished(upto=1)}, checkpoint=9, storage_checkpoint=9
        ),
        lambda: state.lease.open_window(4, 9),
        lambda: state.journal.record(statement(), STARTED, tables=[progress("a/b", 9)]),
        lambda: state.journal.entry(statement()),
        state.progress.load,
    ]


def test_creation_is_repeatable(rig: Rig) -> None:
    """Opening again keeps what is stored."""
    state = rig.owner()
    state.progress.save(tables=[progress("a/b", 7)], sequences={}, checkpoint=6, storage_checkpoint=8)
    again = rig.handle()
    again.open(BUCKET)
    state.open(BUCKET)
    restart, storage_checkpoint = state.progress.load()
    assert (restart.checkpoint, restart.tables, storage_checkpoint) == (6, {"`a`.`b`": 7}, 8)


def test_checkpoints_of_all_and_of_running_tables(rig: Rig) -> None:
    """What idle tables follow only grows; what others see is stored as it is, and stays where nothing is said of it."""
    state = rig.owner()
    state.progress.save(tables=(), sequences={}, checkpoint=6, storage_checkpoint=8, lowest=5)
    state.progress.save(**NOTHING)
    assert (state.progress.load()[0].checkpoint, state.progress.load()[0].lowest) == (6, 5)
    state.progress.save(tables=(), sequences={}, checkpoint=5, storage_checkpoint=8, lowest=2)
    assert (state.progress.load()[0].checkpoint, state.progress.load()[0].lowest) == (6, 2)


def test_fresh_state_is_empty(rig: Rig) -> None:
    """A new state says nothing."""
    assert rig.owner().progress.load() == (Restart(), 0)


def test_rows_that_are_left_out(rig: Rig) -> None:
    """They are stored with the progress of their table, again in place of themselves; what is to be left out is forgotten where it is not asked for."""
    state, odd, nobody = rig.owner(), TableName(schema="d", table="`o'd%"), TableName(schema="", table="")
    state.progress.skip([SkippedRows(nobody, 5, 0), SkippedRows(nobody, LAST, 0), SkippedRows(odd, 5, None)])
    assert state.progress.skipped() == [
        SkippedRows(nobody, 5, 0),
        SkippedRows(odd, 5, None),
        SkippedRows(nobody, LAST, 0),
    ]
    table = progress("d/`o'd%", 7, skipped=(SkippedRows(odd, 5, 12),))
    for _ in range(2):
        state.progress.save(tables=[table], sequences={}, checkpoint=6, storage_checkpoint=8)
    state.progress.skip([], anew=True)
    assert state.progress.skipped() == [SkippedRows(odd, 5, 12)]
    state.progress.skip([SkippedRows(nobody, 6, 0)], anew=True)
    assert state.progress.skipped() == [SkippedRows(odd, 5, 12), SkippedRows(nobody, 6, 0)]
    assert state.journal.entry(statement()) is None


def test_another_buckets_state(rig: Rig) -> None:
    """A state that follows another bucket is refused with both names and the way out."""
    rig.handle().open(BUCKET)
    with pytest.raises(ConfigError, match=r"belongs to the bucket file:///some/bucket, not to s3://other/p"):
        rig.handle().open("s3://other/p")


def test_lease_is_refused_and_expires(rig: Rig) -> None:
    """A second holder learns who the first is, until the first one's time is over by the database's clock."""
    first, second = rig.owner("first"), rig.handle()
    second.open(BUCKET)
    assert second.lease.acquire("second", 30) == "first"
    rig.expire()
    assert second.lease.acquire("second", 30) == ""
    assert second.lease.epoch > first.lease.epoch
    assert first.lease.acquire("first", 30) == "second"


def test_lease_of_the_dead(rig: Rig) -> None:
    """A holder known to be dead is followed immediately; one that is not the dead one keeps the lease."""
    rig.owner("first")
    second = rig.handle()
    assert second.lease.acquire("second", 30, dead="somebody else") == "first"
    assert second.lease.acquire("second", 30, dead="first") == ""


def test_same_holder_again(rig: Rig) -> None:
    """A holder that asks again gets a new epoch without waiting."""
    state = rig.owner("first")
    before = state.lease.epoch
    assert state.lease.acquire("first", 30) == ""
    assert state.lease.epoch > before
    state.progress.save(**NOTHING)


def test_renew_only_while_ours(rig: Rig) -> None:
    """A lease is renewed, even one that has run out while nobody came, but not once it is another's."""
    first, second = rig.owner("first"), rig.handle()
    rig.expire()
    assert first.lease.renew(30)
    assert second.lease.acquire("second", 30) == "first"
    rig.expire()
    assert second.lease.acquire("second", 30) == ""
    assert not first.lease.renew(30)
    assert second.lease.renew(30)


def test_release(rig: Rig) -> None:
    """A lease that is given back is free; one that is another's by now is left alone."""
    first, second, third = rig.owner("first"), rig.handle(), rig.handle()
    first.lease.release()
    assert second.lease.acquire("second", 30) == ""
    first.lease.release()
    assert third.lease.acquire("third", 30) == "second"


def test_nothing_is_written_after_a_take_over(rig: Rig) -> None:
    """Whatever the former owner tries, it raises and changes nothing."""
    first, second = rig.owner("first"), rig.handle()
    window = first.lease.open_window(2, 1)
    rig.expire()
    second.lease.acquire("second", 30)
    for write in writes(first):
        with pytest.raises(LeaseLost, match="another process took the lease"):
            write()
    assert second.progress.load() == (Restart(), 1)
    assert second.journal.entry(statement()) is None
    assert second.lease.open_window(2, 0) == window + 1


def test_windows_rise(rig: Rig) -> None:
    """Each window has a higher id, over owners too, and the storage checkpoint seen with it is kept."""
    state = rig.owner()
    ids = [state.lease.open_window(partitions, 5) for partitions in (3, 1, 40)]
    rig.expire()
    state = rig.owner("next")
    ids.append(state.lease.open_window(2, 4))
    assert ids == sorted(set(ids))
    assert state.progress.load()[1] == 5


def test_checkpoints_never_fall(rig: Rig) -> None:
    """What is saved later with a lower checkpoint changes the state and the error, never the checkpoint."""
    state = rig.owner()
    state.progress.save(tables=[progress("a/b", 9)], sequences={}, checkpoint=9, storage_checkpoint=9)
    state.progress.save(
        tables=[progress("a/b", 4, "halted", follows=False, error="e")],
        sequences={},
        checkpoint=4,
        storage_checkpoint=4,
    )
    restart, storage_checkpoint = state.progress.load()
    assert (restart.checkpoint, restart.tables["`a`.`b`"], storage_checkpoint) == (9, 9, 9)
    assert restart.behind == {"`a`.`b`"}


def test_load_gives_back_what_was_saved(rig: Rig) -> None:
    """Tables, sequences and all statements that were tried come back by their exact names."""
    state = rig.owner()
    long = "s" * 64 + "/" + "表" * 64
    tables = [
        progress(ODD, LAST),
        progress(ODD.lower() + "x", 1, "halted", follows=False, error="it's 100% :broken"),
        progress(long, 3, "dropped"),
        progress(f"{long} ", 4),
    ]
    sequences = {
        f"{ODD}/1/2026-01-31|{'d' * 32}|20": Finished(
            upto=LAST, left_out=EVERYTHING, digests={LAST // CHUNK: b"%\0'" * CHUNK}
        ),
        f"{long}/{LAST}||6": Finished(upto=1),
    }
    state.progress.save(tables=tables, sequences=sequences, checkpoint=LAST - 1, storage_checkpoint=LAST)
    for checksum, where in enumerate((PLANNED, STARTED, DONE, SKIPPED, FAILED)):
        state.journal.record(statement(ODD, LAST, checksum, query="SELECT '%s' :x"), where, note="100% :x")
    restart, storage_checkpoint = state.progress.load()
    assert storage_checkpoint == LAST
    assert restart == Restart(
        checkpoint=LAST - 1,
        tables={table.table_key: table.checkpoint for table in tables},
        behind=frozenset({tables[1].table_key}),
        dropped=frozenset({tables[2].table_key}),
        targets={
            table.table_key: (name := TableName(schema=table.schema, table=table.table), name)
            for table in tables
            if table.state != "dropped"
        },
        done=sequences,
        journalled=frozenset({DdlId(ODD, LAST, 2), DdlId(ODD, LAST, 3)}),
        started=frozenset({DdlId(ODD, LAST, 1)}),
        refused=frozenset({DdlId(ODD, LAST, 4)}),
    )


def test_digests_of_files(rig: Rig) -> None:
    """A chunk of digests that is stored takes the place of the one before, and leaves the others; or of all, where they go."""
    state = rig.owner()

    def saved(**sequences: Finished) -> Mapping[str, Finished]:
        state.progress.save(tables=(), sequences=sequences, checkpoint=0, storage_checkpoint=0)
        restart: Restart = state.progress.load()[0]
        return restart.done

    full, half = b"12345678" * CHUNK, b"12345678" * 3 + b"\0" * 8
    one = Finished(upto=70, digests={0: full, 1: half})
    assert saved(s=one, t=one) == {"s": one, "t": one}
    moved = Finished(upto=71, left_out=60, digests={1: full})
    expected = Finished(upto=71, left_out=60, digests={0: full, 1: full})
    assert saved(s=moved) == {"s": expected, "t": one}
    closed = Finished(upto=72, left_out=EVERYTHING, replaces=True, digests={7: half})
    expected = Finished(upto=72, left_out=EVERYTHING, digests={7: half})
    assert saved(s=closed) == {"s": expected, "t": one}
    assert saved(s=Finished(upto=72, left_out=EVERYTHING, replaces=True))["s"].digests == {}


def test_where_tables_are(rig: Rig) -> None:
    """Each table that is in the target is given back with its place there, by default its own name; others have none."""
    state, place = rig.owner(), TableName(schema="copy", table="a_old")
    tables = [
        progress("shop/a", 1, target=place),
        progress("shop/b", 1),
        progress("shop/c", 1, "dropped", target=place),
        progress("shop/d", 1, "excluded", target=place),
    ]
    state.progress.save(tables=tables, sequences={}, checkpoint=0, storage_checkpoint=0)
    restart, _ = state.progress.load()
    own = {table: TableName(schema="shop", table=table) for table in "ab"}
    assert restart.targets == {"`shop`.`a`": (own["a"], place), "`shop`.`b`": (own["b"], own["b"])}
    assert restart.excluded.keys() == {"`shop`.`d`"}
    moved = TableName(schema="copy", table="a_new")
    state.progress.save(tables=[progress("shop/a", 2, target=moved)], sequences={}, checkpoint=0, storage_checkpoint=0)
    assert state.progress.load()[0].targets["`shop`.`a`"] == (own["a"], moved)


@pytest.mark.parametrize("meanwhile", ["running", "dropped", "excluded"])
def test_without_routes_a_table_is_under_its_own_name(rig: Rig, meanwhile: str) -> None:
    """Whatever place earlier routes gave it; what may be outdated changes no stored place."""
    state, place, name = rig.owner(), TableName(schema="copy", table="a"), TableName(schema="shop", table="a")

    def found(**more: Any) -> TableName:
        state.progress.save(tables=[progress("shop/a", 1, **more)], sequences={}, checkpoint=0, storage_checkpoint=0)
        restart: Restart = state.progress.load()[0]
        return restart.targets["`shop`.`a`"][1]

    assert found(target=place) == place
    assert found(may_be_outdated=True) == place
    state.progress.save(
        tables=[progress("shop/a", 1, meanwhile, target=place)], sequences={}, checkpoint=0, storage_checkpoint=0
    )
    assert found() == name


@pytest.mark.parametrize("stopped", ["lost", "halted"])
def test_a_statement_that_ends_forgets_no_stop(rig: Rig, stopped: str) -> None:
    """What a statement moves is as it was when it began: a table that stopped meanwhile stays so, and follows nothing."""
    state = rig.owner()
    there = progress("a/b", 1, stopped, follows=False, error="a file vanished")
    state.progress.save(tables=[there], sequences={}, checkpoint=0, storage_checkpoint=0)
    state.journal.record(statement(), DONE, tables=[progress("a/b", 9)])
    restart, _ = state.progress.load()
    assert (restart.lost.keys(), restart.behind) == ({"`a`.`b`"} if stopped == "lost" else set(), {"`a`.`b`"})
    assert restart.tables["`a`.`b`"] == 9
    state.progress.save(tables=[progress("a/b", 10)], sequences={}, checkpoint=0, storage_checkpoint=0)
    restart, _ = state.progress.load()
    assert (restart.lost.keys(), restart.behind) == (frozenset(), frozenset())


def test_what_may_be_outdated_replaces_no_state(rig: Rig) -> None:
    """Of a table whose statement may have ended unheard, the stored state and place stay; its checkpoint moves, and a new table is stored whole."""
    state = rig.owner()
    state.progress.save(tables=[progress("a/b", 5, "dropped")], sequences={}, checkpoint=0, storage_checkpoint=0)
    here, elsewhere = TableName(schema="x", table="b"), TableName(schema="x", table="c")
    state.journal.record(statement(), DONE, tables=[progress("a/b", 9, target=here)])
    outdated = [
        progress("a/b", 10, "dropped", follows=False, target=elsewhere, may_be_outdated=True),
        progress("a/c", 3, "dropped", follows=False, may_be_outdated=True),
    ]
    state.progress.save(tables=outdated, sequences={}, checkpoint=0, storage_checkpoint=0)
    restart, _ = state.progress.load()
    assert (restart.dropped, restart.behind) == ({"`a`.`c`"}, {"`a`.`c`"})
    assert restart.tables == {"`a`.`b`": 10, "`a`.`c`": 3}
    assert restart.targets["`a`.`b`"][1] == here
    state.progress.save(tables=[progress("a/b", 10, "dropped")], sequences={}, checkpoint=0, storage_checkpoint=0)
    assert state.progress.load()[0].dropped == {"`a`.`b`", "`a`.`c`"}


def test_long_texts_are_cut_not_refused(rig: Rig) -> None:
    """An error or note of any length and any sign is stored."""
    state = rig.owner()
    state.progress.save(
        tables=[progress("a/b", 1, error="😀" * 70_000)], sequences={}, checkpoint=0, storage_checkpoint=0
    )
    state.journal.record(
        statement(query="x" * 300_000),
        FAILED,
        run=Sent(statement="y" * 300_000, structure_before=""),
        note="表" * 100_000,
    )
    assert state.journal.entry(statement()).state == FAILED


def test_many_at_once(rig: Rig) -> None:
    """Two thousand sequences and tables go in one call."""
    state = rig.owner()
    sequences = {f"shop/t{n}/{LAST}/2026-01-31||20": Finished(upto=n) for n in range(2_000)}
    tables = [progress(f"shop/t{n}", n) for n in range(2_000)]
    state.progress.save(tables=tables, sequences=sequences, checkpoint=0, storage_checkpoint=0)
    assert state.progress.load()[0].done == sequences


def test_journal_moves_tables_with_it(rig: Rig) -> None:
    """From planned over started to done: the structure stays noted, and the tables move with the last step."""
    state, step = rig.owner(), statement()
    assert state.journal.entry(step) is None
    state.journal.record(step, PLANNED, run=SENT)
    state.journal.record(step, STARTED, run=SENT)
    entry = state.journal.entry(step)
    assert (entry.state, entry.structure_before) == (STARTED, "before")
    assert state.progress.load()[0] == Restart(started=frozenset({step.identity}))
    state.journal.record(step, DONE, note="n", tables=[progress("shop/a", 5), progress("shop/b", 5, "dropped")])
    entry = state.journal.entry(step)
    assert (entry.state, entry.structure_before, entry.note) == (DONE, "before", "n")
    restart, _ = state.progress.load()
    assert (restart.tables, restart.dropped) == ({"`shop`.`a`": 5, "`shop`.`b`": 5}, {"`shop`.`b`"})
    assert restart.journalled == {step.identity}


def test_statements_of_one_version_are_apart(rig: Rig) -> None:
    """Directory, version and checksum together tell a statement (O16)."""
    state = rig.owner()
    state.journal.record(statement(), DONE)
    for other in (statement("shop/b"), statement(version=6), statement(checksum=8)):
        assert state.journal.entry(other) is None


@pytest.mark.server
def test_connections_are_kept(mariadb: DatabaseServer) -> None:
    """What workers and the round write side by side opens no connection a second time, and no transaction is left open."""
    rig = real_rig(mariadb)
    state = rig.owner()

    def work(worker: int) -> None:
        for version in range(20):
            state.journal.record(
                statement(f"shop/t{worker}", version), DONE, tables=[progress(f"shop/t{worker}", version)]
            )

    def opened() -> int:
        return int(mariadb.query("SHOW GLOBAL STATUS LIKE 'Connections'")[0][1])

    before = opened()
    with ThreadPoolExecutor(6) as workers:
        for _ in range(3):
            list(workers.map(work, range(6)))
    assert opened() - before <= 6 + 1, "one for each worker, and the one that asks"
    assert mariadb.query("SELECT COUNT(*) FROM information_schema.innodb_trx") == ((0,),)
    rig.close()
