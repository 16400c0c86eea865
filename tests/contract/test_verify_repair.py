"""Rows that differ are mended as the source has them, beside a consumer, and nothing else is touched."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import Any

import pytest

from storage_consumer.config.settings import ColumnSelector, Downstream, Server
from storage_consumer.config.table_filter import ALL_COLUMNS, CarriedColumns
from storage_consumer.errors import ConfigError, RowRefused
from storage_consumer.model import SkippedRows, TableName
from storage_consumer.operating.compared_source import NotComparable
from storage_consumer.operating.mending import STILL_DIFFERS, TableMending
from storage_consumer.rows.comparison import VerifyOutcome
from tests.contract.state_rigs import statement
from tests.contract.verify_rigs import SOURCE, TARGET, VerifyRig
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
SOURCES = ("tidb",) if "tidb" in KINDS else ("mariadb",)
WITHOUT_U = CarriedColumns(selectors=(ColumnSelector(matcher=("*.*",), columns=("*", "!u")),))
ROWS = [(number, f"row {number}") for number in range(1_000)]
TYPES = (
    *("TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "DECIMAL(30,10)"),
    *("FLOAT", "DOUBLE", "BIT(12)", "YEAR", "DATE", "DATETIME(6)", "TIMESTAMP(3) NULL", "TIME(2)", "CHAR(5)"),
    *("VARCHAR(40)", "TEXT", "BINARY(4)", "VARBINARY(20)", "BLOB", "ENUM('a','b''c')", "SET('x','y','z')", "JSON"),
)
VALUES = (
    *(-128, 65535, -8388608, 4294967295, -(1 << 63), (1 << 64) - 1, "-12345678901234567890.0123456789"),
    *("3.4028235e38", "2.2250738585072014e-308", 0xABC, 2155, "1000-01-01", "9999-12-31 23:59:59.999999"),
    *(
        "2037-12-31 23:59:59.123",
        "-838:59:59.00",
        "a  b",
        "it's\t\\ \U0001f600\n",
        "",
        b"\0\1",
        b"\xff\0'\\",
        b"\x00" * 9,
    ),
    *("b'c", "x,z", '{"a": [1, "\u00e9", null, 1.5]}'),
)


@pytest.fixture(params=[(source, target) for source in SOURCES for target in KINDS], ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """Each source with each target, and a table with rows, at rest."""
    source, target = request.param
    servers: list[DatabaseServer] = [request.getfixturevalue(kind) for kind in dict.fromkeys((source, target))]
    found = VerifyRig(servers[0], servers[-1])
    found.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(40), u INT, UNIQUE (u))")
    found.both("INSERT INTO t (id, v) VALUES (%s, %s)", rows=ROWS)
    found.at_rest("t")
    return found


def _damage(rig: VerifyRig) -> None:
    """Make seven rows differ."""
    rig.at_target("UPDATE t SET v = 'wrong' WHERE id IN (3, 500)")
    rig.at_target("DELETE FROM t WHERE id IN (0, 7, 999)")
    rig.at_target("INSERT INTO t (id, v) VALUES (-1, 'too many'), (5000, NULL)")


def test_each_kind_of_difference(rig: VerifyRig) -> None:
    """Rows with another value, missing and surplus ones are as at the source afterwards; a later comparison finds nothing."""
    _damage(rig)
    found = rig.one("t", repair="apply", wait=5.0)
    assert (found.outcome, found.different_rows, found.heal) == (VerifyOutcome.EQUAL, 0, "")
    assert found.notes[-1].startswith("7 rows mended as of ")
    assert rig.one("t").outcome is VerifyOutcome.EQUAL


def test_each_type(rig: VerifyRig) -> None:
    """A value of every type, and NULL, comes as the source has it, under a key of text and bytes with spaces and another case."""
    # JSON of MariaDB is text, which a MySQL shows otherwise.
    json_type = "JSON" if rig.is_live or rig.source.kind == rig.target.kind else "LONGTEXT"
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate((*TYPES[:-1], json_type)))
    rig.both(
        f"CREATE TABLE kinds (a VARCHAR(10) COLLATE utf8mb4_general_ci, b VARBINARY(4), {columns}, PRIMARY KEY (a, b))"
    )
    insert = f"INSERT INTO kinds VALUES (%s, %s, {', '.join(['%s'] * len(TYPES))})"
    keys = [("A", b"\0"), ("a ", b"\1 "), ("%s'`", b""), ("\u00e9\\", b"\xff")]
    rows = [(*key, *(VALUES if number % 2 else [None] * len(VALUES))) for number, key in enumerate(keys)]
    rig.both(insert, rows=rows)
    rig.at_rest("t", "kinds")
    assert rig.one("kinds").outcome is VerifyOutcome.EQUAL
    rig.at_target("DELETE FROM kinds WHERE b IN (x'01', x'20', '')")
    rig.at_target("UPDATE kinds SET c16 = 'other', c4 = 0 WHERE b IN (x'ff', x'00')")
    found = rig.one("kinds", repair="apply", wait=5.0)
    assert found.outcome is VerifyOutcome.EQUAL, found
    assert rig.one("kinds").outcome is VerifyOutcome.EQUAL


def test_rows_that_were_left_out(rig: VerifyRig) -> None:
    """What --skip-commit-ts left out of a table comes back only where the table is asked for by --table."""
    _damage(rig)
    with closing(rig.state()) as state:
        state.progress.skip([SkippedRows(TableName(schema=SOURCE, table="t"), rig.now(), 3)])
    found = rig.one("t", repair="apply", wait=5.0)
    assert (found.outcome, found.different_rows) == (VerifyOutcome.DIFFERENT, 7)
    assert "--skip-commit-ts left rows of it out" in found.notes[-1]
    assert rig.one("t", repair="apply", wait=5.0, tables=f"{SOURCE}.t").outcome is VerifyOutcome.EQUAL


def test_only_shown(rig: VerifyRig) -> None:
    """The statements that mend are returned, and nothing is written; run by hand they make the table equal."""
    _damage(rig)
    found = rig.one("t", repair="print", wait=5.0)
    assert (found.outcome, found.different_rows) == (VerifyOutcome.DIFFERENT, 7)
    rig.at_target(*(line.rstrip(";") for line in found.repair if not line.startswith("--")))
    assert rig.one("t").outcome is VerifyOutcome.EQUAL


def test_surplus_rows_alone(rig: VerifyRig) -> None:
    """Rows that the source lacks go, where it has none of those that are mended."""
    rig.at_target("INSERT INTO t (id, v) VALUES (-1, 'too many')")
    assert rig.one("t", repair="apply", wait=5.0).outcome is VerifyOutcome.EQUAL
    assert rig.target.query(f"SELECT COUNT(*) FROM {TARGET}.t") == ((1_000,),)


def _mending(
    rig: VerifyRig, carried: CarriedColumns = ALL_COLUMNS, wait: float = 0.3, table: str = "t"
) -> TableMending:
    return TableMending(
        target=Server(settings=rig.settings),
        source=Server(settings=Downstream(port=rig.source.port)),
        state=rig.state(),
        table_key=rig.key(table),
        carried=carried,
        wait=wait,
        stop=threading.Event(),
        is_frozen=not rig.is_live,
    )


def test_a_window_that_is_open(rig: VerifyRig) -> None:
    """Beside a job that may have written rows beyond the checkpoint, rows come as of its end, and count once the table is there."""
    rig.at_source("UPDATE t SET v = 'newer' WHERE id = 3")
    rig.at_target("UPDATE t SET v = 'wrong' WHERE id IN (3, 4)")
    with closing(_mending(rig)) as mending, closing(mending.state) as state:
        at = rig.now() + 1
        state.lease.open_window(1, at, {rig.key("t"): at})
        done = mending.mend([(b"3",), (b"4",)])
        assert (done.as_of, done.rows, done.is_equal) == (at, 2, None)
        state.progress.save(tables=[rig.progress("t", at)], sequences={}, checkpoint=at, storage_checkpoint=at)
    assert rig.one("t").outcome is VerifyOutcome.EQUAL


def test_a_window_that_opens_between_look_and_commit(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is too old then: nothing of it stays, and newer rows are read."""
    rig.at_target("UPDATE t SET v = 'wrong' WHERE id = 3")
    reads, read = [], TableMending._read
    with closing(_mending(rig, wait=20.0)) as mending, closing(mending.state) as state:

        def interrupted(self: TableMending, keys: list[tuple[bytes, ...]]) -> object:
            found = read(self, keys)
            reads.append(found.as_of)
            if len(reads) == 1:
                rig.at_source("UPDATE t SET v = 'newer' WHERE id = 3")
                at = rig.now() + 1
                state.lease.open_window(1, at, {rig.key("t"): at})
                rig.at_target("UPDATE t SET v = 'newer' WHERE id = 3")
                state.progress.save(tables=[rig.progress("t", at)], sequences={}, checkpoint=at, storage_checkpoint=at)
            return found

        monkeypatch.setattr(TableMending, "_read", interrupted)
        assert mending.mend([(b"3",)]).is_equal
    assert len(reads) == 2
    assert rig.target.query(f"SELECT v FROM {TARGET}.t WHERE id = 3") == (("newer",),)


def test_a_statement_that_follows(rig: VerifyRig) -> None:
    """Nothing is mended right before a statement of the table: the source may show its effect already."""
    rig.at_target("UPDATE t SET v = 'wrong' WHERE id = 3")
    with closing(_mending(rig)) as mending, closing(mending.state) as state:
        step = statement(f"{SOURCE}/t", version=rig.now(), query="ALTER TABLE `t` TRUNCATE PARTITION p")
        state.history.keep([(rig.key("t"), step.definition)])
        with pytest.raises(Exception, match="has to run first"):
            mending.mend([(b"3",)])
    assert rig.target.query(f"SELECT v FROM {TARGET}.t WHERE id = 3") == (("wrong",),)


@pytest.mark.parametrize(
    ("statements", "rows", "wishes", "why"),
    [
        (["DELETE FROM t WHERE id < 20"], 20, {"repair_limit": 19}, "more than 19 (--repair-limit)"),
        (["ALTER TABLE t ADD COLUMN x INT", "DELETE FROM t WHERE id = 1"], 1, {}, "its structure differs"),
        (
            ["DELETE FROM t WHERE id = 3", "INSERT INTO t (id, u) VALUES (9000, 1)"],
            2,
            {"carried": WITHOUT_U},
            "leaves columns out",
        ),
    ],
    ids=["more than the limit", "another structure", "columns that are left out"],
)
def test_what_is_not_mended(
    rig: VerifyRig, statements: list[str], rows: int, wishes: dict[str, object], why: str
) -> None:
    """The table stays as it is, differs, and says why; the way on is the one of a table that differs."""
    rig.at_target(*statements)
    before = rig.target.query(f"SELECT * FROM {TARGET}.t ORDER BY id")
    found = rig.one("t", repair="apply", **wishes)
    assert (found.outcome, found.different_rows) == (VerifyOutcome.DIFFERENT, rows)
    assert why in found.notes[-1]
    assert "storage-consumer load" in found.heal
    assert rig.target.query(f"SELECT * FROM {TARGET}.t ORDER BY id") == before


def test_a_row_in_the_way(rig: VerifyRig) -> None:
    """A row whose unique key another row of the target has is refused by name: that one is not thrown out."""
    rig.at_source("UPDATE t SET u = 1 WHERE id = 3")
    rig.at_target("UPDATE t SET u = 1 WHERE id = 4")
    rig.at_rest("t")
    with (
        closing(_mending(rig)) as mending,
        closing(mending.state),
        pytest.raises(Exception, match="allows only one of the two"),
    ):
        mending.mend([(b"3",)])
    assert rig.one("t", repair="apply", wait=5.0).outcome is VerifyOutcome.EQUAL


def test_rows_in_one_anothers_way(rig: VerifyRig) -> None:
    """Rows that hold one another's unique values are mended together, though they are many."""
    rig.at_source("UPDATE t SET u = id")
    rig.at_target("UPDATE t SET u = (id + 120) % 250 WHERE id < 250", "UPDATE t SET u = id WHERE id >= 250")
    rig.at_rest("t")
    found = rig.one("t", repair="apply", wait=5.0)
    assert (found.outcome, found.notes[-1][:16]) == (VerifyOutcome.EQUAL, "250 rows mended ")


_TEXT_KEYS = "CREATE TABLE texts (k VARCHAR(9) COLLATE {}, v VARCHAR(9), PRIMARY KEY (k))"


def _text_keys(rig: VerifyRig, collations: tuple[str, str], rows: tuple[str, str]) -> None:
    for run, collation, values in zip((rig.at_source, rig.at_target), collations, rows, strict=True):
        run(_TEXT_KEYS.format(collation), f"INSERT INTO texts VALUES {values}")
    rig.at_rest("t", "texts")


def test_a_row_that_only_the_target_finds_equal(rig: VerifyRig) -> None:
    """It is not deleted with the one that is mended: that one is refused by name."""
    _text_keys(rig, ("utf8mb4_bin", "utf8mb4_general_ci"), ("('a', '1'), ('A', '2')", "('A', '2')"))
    with (
        closing(_mending(rig, table="texts")) as mending,
        closing(mending.state),
        pytest.raises(RowRefused, match="allows only one of the two"),
    ):
        mending.mend([(b"a",)])
    assert rig.target.query(f"SELECT * FROM {TARGET}.texts") == (("A", "2"),)


def test_such_a_row_that_comes_meanwhile(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is open may write it after the look: it stays all the same."""
    _text_keys(rig, ("utf8mb4_bin", "utf8mb4_general_ci"), ("('A', '2')", "('b', '0')"))
    read = TableMending._read

    def interrupted(self: TableMending, keys: list[tuple[bytes, ...]]) -> object:
        found = read(self, keys)
        rig.at_target("REPLACE INTO texts VALUES ('A', '2')")
        return found

    monkeypatch.setattr(TableMending, "_read", interrupted)
    with closing(_mending(rig, table="texts", wait=20.0)) as mending, closing(mending.state):
        assert mending.mend([(b"a",)]).rows == 1
    assert rig.target.query(f"SELECT * FROM {TARGET}.texts WHERE k = 'a'") == (("A", "2"),)


def test_a_key_in_another_spelling(rig: VerifyRig) -> None:
    """Where the source finds it equal to the row's, that row is meant, and is seen to be equal."""
    _text_keys(rig, ("utf8mb4_general_ci", "utf8mb4_bin"), ("('A', '2')", "('A', '1')"))
    with closing(_mending(rig, table="texts")) as mending, closing(mending.state):
        assert mending.mend([(b"a",)]).is_equal
    assert rig.target.query(f"SELECT * FROM {TARGET}.texts") == (("A", "2"),)


def test_rows_that_differ_all_the_same(rig: VerifyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else, or a trigger, changes the target: it is not promised that they are equal later."""
    rig.at_target("DELETE FROM t WHERE id = 3")
    write = TableMending._write

    def disturbed(self: TableMending, found: Any) -> None:
        write(self, found)
        rig.at_target("UPDATE t SET v = 'other' WHERE id = 3")

    monkeypatch.setattr(TableMending, "_write", disturbed)
    found = rig.one("t", repair="apply", wait=20.0)
    assert (found.outcome, STILL_DIFFERS in found.notes[-1]) == (VerifyOutcome.DIFFERENT, True)


@pytest.mark.parametrize("key", [b"x", b"--5", b"NaN", b"1e3", b"1 OR 1"])
def test_a_key_that_is_not_of_the_type(rig: VerifyRig, key: bytes) -> None:
    """It is refused by name."""
    with (
        closing(_mending(rig)) as mending,
        closing(mending.state),
        pytest.raises(NotComparable, match="is not a number"),
    ):
        mending.mend([(key,)])


if "tidb" in KINDS:  # else there is no such source

    def test_what_a_statement_does_before_its_version(rig: VerifyRig) -> None:
        """The source shows it already, and nobody knows the statement: rows that another table gets by it are not written into this one."""
        ranges = "PARTITION BY RANGE (k) (PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN (99))"
        rig.both(f"CREATE TABLE parts (k INT PRIMARY KEY, v INT) {ranges}", "INSERT INTO parts VALUES (1, 1)")
        rig.at_source("CREATE TABLE other (k INT PRIMARY KEY, v INT)", "INSERT INTO other VALUES (1, 7)")
        rig.at_source("ALTER TABLE parts EXCHANGE PARTITION p WITH TABLE other")
        ((job,),) = rig.source.query(
            "SELECT job_meta FROM mysql.tidb_ddl_history WHERE table_ids <> '' ORDER BY job_id DESC LIMIT 1"
        )
        version = json.loads(job)["binlog"]["FinishedTS"]
        rig.at_rest("t", "parts", at=version - 1)
        with closing(_mending(rig, table="parts")) as mending, closing(mending.state):
            with pytest.raises(NotComparable, match="EXCHANGE PARTITION"):
                mending.mend([(b"1",)])
            rig.at_target("UPDATE parts SET v = 9")
            rig.at_rest("parts")
            assert mending.mend([(b"1",)]).is_equal
        assert rig.target.query(f"SELECT * FROM {TARGET}.parts") == ((1, 7),)


@pytest.mark.parametrize("state", ["dropped", "excluded"])
def test_a_table_that_is_not_replicated(rig: VerifyRig, state: str) -> None:
    """Its checkpoint says nothing of its rows, so none is written, also for keys that somebody names."""
    rig.at_target("UPDATE t SET v = 'other' WHERE id = 3")
    rig.at_rest("t", state=state)
    expected = pytest.raises(NotComparable, match=f"it is {state}")
    with closing(_mending(rig)) as mending, closing(mending.state), expected:
        mending.mend([(b"3",)])
    assert rig.target.query(f"SELECT v FROM {TARGET}.t WHERE id = 3") == (("other",),)


def test_a_table_without_a_key(rig: VerifyRig) -> None:
    """Its rows cannot be told apart, so it is to be loaded."""
    rig.both("CREATE TABLE bag (v INT)", "INSERT INTO bag VALUES (1), (1), (2)")
    rig.at_rest("t", "bag")
    rig.at_target("DELETE FROM bag WHERE v = 2")
    found = rig.one("bag", repair="apply")
    assert found.outcome is VerifyOutcome.DIFFERENT
    assert "load the table instead" in found.notes[-1]
    assert "load the table instead" in rig.one("bag", repair="print").notes[-1]


@pytest.mark.parametrize("more", [{"resume": True}, {"how": "quick"}])
def test_what_sees_no_rows(rig: VerifyRig, more: dict[str, object]) -> None:
    """A comparison that does not see each row that differs cannot mend them."""
    with pytest.raises(ConfigError, match="without --resume and --quick"):
        rig.one("t", repair="apply", **more)
