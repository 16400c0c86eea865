"""``run`` over a source that had tables before its changefeed: it does not begin without their rows, and makes the copy itself where it may."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.acceptance.situations.agreeing import Witness
from tests.acceptance.situations.watching import typed
from tests.harness import servers
from tests.harness.program import command, program
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)]
ORDERS = (*ID_NAME, column("state", "VARCHAR", ColumnPrecision="10"))


def arguments(bucket: SmallBucket, server: DatabaseServer, *words: str) -> list[str]:
    """What ``run`` takes."""
    config = bucket.root.with_name("changefeed.toml")
    config.write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    common = ["--upstream-uri", bucket.uri, "--config", str(config), "--downstream-uri", server.uri, "--tz", "UTC"]
    return [*common, "--flush-interval", "200ms", "--lease-ttl", "3s", *words]


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A bucket with one change of a table that no statement creates."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.schema("d.t", ts(1), "", 0)
    found.rows("d.t", 1, row("d.t", 5, "2", '"two"'))
    found.metadata(ts(9))
    return found


def exported(folder: Path, rows: str = "(1,'one')", at: int = 4) -> Path:
    """An export of d.t with the row from before and what else it has by tick `at`."""
    folder.mkdir()
    (folder / "metadata").write_text(
        f"Started dump at: 2026-11-21 00:00:00\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts(at)}\n\tGTID:\n\n"
        "Finished dump at: 2026-11-21 00:00:01\n",
        encoding="utf-8",
    )
    create = "CREATE TABLE `t` (\n  `id` INT NOT NULL,\n  `name` VARCHAR(20),\n  PRIMARY KEY (`id`),\n  KEY `n` (`name`)\n);\n"
    (folder / "d-schema-create.sql").write_text("CREATE DATABASE `d`;\n", encoding="utf-8")
    (folder / "d.t-schema.sql").write_text(create, encoding="utf-8")
    (folder / "d.t.000000000.sql").write_text(f"INSERT INTO `t` VALUES\n{rows};\n", encoding="utf-8")
    return folder


def test_it_does_not_begin_without_their_rows(bucket: SmallBucket, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Exit code 2 names both ways on, the target has no table of the feed, and `plan` says the same; with --no-copy it begins."""
    with program(arguments(bucket, mariadb, "--once"), tmp_path / "log") as running:
        assert running.end() == 2
        said = running.text()
    planned = command("plan", *arguments(bucket, mariadb)[:4], "--tz", "UTC", server=mariadb)
    for text in (said, planned.stderr):
        for words in ("no statement in the bucket creates d.t", "--dump", "--source", "--no-copy"):
            assert words in text
    assert planned.returncode == 2
    assert "d" not in mariadb.databases()
    with program(arguments(bucket, mariadb, "--once", "--no-copy"), tmp_path / "log2") as running:
        assert running.end() == 0
    assert mariadb.query("SELECT * FROM d.t") == ((2, "two"),)
    # A copy brings the index too, though the columns are those of the table that is there.
    export = exported(tmp_path / "export", "(1,'one'),(2,'two')", at=10)
    bucket.metadata(ts(11))
    asked = command("load", "--table", "d.t", "--dump", export.as_uri(), "--replace", server=mariadb)
    assert (asked.returncode, asked.stderr) == (0, "")
    with program(arguments(bucket, mariadb, "--once"), tmp_path / "log3") as running:
        assert running.end() == 0
    assert mariadb.query("SELECT * FROM d.t ORDER BY 1") == ((1, "one"), (2, "two"))
    assert "n" in {str(found[2]) for found in mariadb.query("SHOW INDEX FROM d.t")}


def test_it_begins_with_the_copy_that_it_asked_for(
    bucket: SmallBucket, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """After the stop nothing is left of the run, so the same command with --dump begins with that: rows of both, and the index."""
    with program(arguments(bucket, mariadb, "--once"), tmp_path / "log") as running:
        assert running.end() == 2
    words = ("--once", "--dump", exported(tmp_path / "export").as_uri(), "--start-ts", str(ts(3)))
    with program(arguments(bucket, mariadb, *words), tmp_path / "log2") as running:
        assert running.end() == 0, running.text()
    assert mariadb.query("SELECT * FROM d.t ORDER BY 1") == ((1, "one"), (2, "two"))
    assert "n" in {str(found[2]) for found in mariadb.query("SHOW INDEX FROM d.t")}


def test_a_table_that_shows_later_halts_until_it_has_a_copy(
    bucket: SmallBucket, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """In a feed that runs it is that table alone; the command that is named, with an export, makes it equal; all that shows it agrees."""
    first = SmallBucket(root=tmp_path / "bucket2")
    first.create("d.a")
    first.metadata(ts(4))
    with program(arguments(first, mariadb, "--metrics-listen", "127.0.0.1:0"), tmp_path / "log") as running:
        running.wait_for("round_finished", checkpoint=ts(4))
        address = running.wait_for("listening")["address"]
        witness = Witness(uri=mariadb.uri, address=lambda: f"http://{address}")
        witness.start()
        wait_until("a healthy feed", lambda: witness.words()[-1:] == ["healthy"])
        shutil.copytree(bucket.root / "d" / "t", first.root / "d" / "t")
        first.metadata(ts(9))
        halted = running.wait_for("table_halted", table="d.t")
        assert "the source had it before the changefeed began" in str(halted["error"])
        pause = str(halted["error"]).partition("run: ")[2].partition(" -- ")[0]
        assert typed(pause).code == 0
        export = exported(tmp_path / "export")
        asked = command("load", "--table", "d.t", "--dump", export.as_uri(), "--replace", server=mariadb)
        assert (asked.returncode, asked.stderr) == (0, "")
        wait_until("healthy", lambda: command("status", server=mariadb).returncode == 0)
        wait_until("healthy by the metrics", lambda: witness.words()[-1:] == ["healthy"])
        # Up to five seconds after the load the process still has what it counted before: a table that is not equal.
        counted = [word for word, _ in groupby(word for word in witness.words() if word != "unequal")]
        assert counted == ["healthy", "stopped", "healthy"]
        witness.end()
    assert mariadb.query("SELECT * FROM d.t ORDER BY 1") == ((1, "one"), (2, "two"))
    assert "n" in {str(found[2]) for found in mariadb.query("SHOW INDEX FROM d.t")}


if "tidb" in KINDS:  # else there is no such source
    TABLES = (
        "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20), state VARCHAR(10), KEY by_name (name), UNIQUE KEY one_of (state, id))",
        "CREATE TABLE items (id BIGINT AUTO_RANDOM PRIMARY KEY, `order` INT NOT NULL)",
        "CREATE TABLE empty (id INT PRIMARY KEY)",
        "CREATE TABLE loose (a INT)",
        "CREATE VIEW open_orders AS SELECT * FROM orders WHERE state = 'open'",
        "CREATE VIEW loose_view AS SELECT * FROM loose",
        "CREATE SEQUENCE seq",
        "CREATE GLOBAL TEMPORARY TABLE passing (id INT PRIMARY KEY) ON COMMIT DELETE ROWS",
    )

    def source_of(tidb: DatabaseServer, folder: Path) -> SmallBucket:
        """Tables with rows, and after them the bucket of a changefeed, which has none of those."""
        tidb.allow_snapshots()
        tidb.query("CREATE DATABASE shop")
        with tidb.connect(database="shop") as connection, connection.cursor() as cursor:
            for statement in TABLES:
                cursor.execute(statement)
            orders = [(number, f"order {number}", "open") for number in range(20_000)]
            cursor.executemany("INSERT INTO orders VALUES (%s, %s, %s)", orders)
            cursor.executemany("INSERT INTO items (`order`) VALUES (%s)", [(number,) for number in range(0, 20_000, 7)])
            cursor.execute("INSERT INTO loose VALUES (1), (1)")
        bucket = SmallBucket(root=folder / "bucket")
        bucket.schema("shop.orders", tidb.tso(), "", 0, ORDERS)
        bucket.metadata(tidb.tso())
        return bucket

    def change(tidb: DatabaseServer, bucket: SmallBucket) -> None:
        """Change a row of the source, and have the changefeed write that."""
        (path,) = (bucket.root / "shop" / "orders" / "meta").iterdir()
        version = int(path.name.split("_")[1])
        tidb.query("UPDATE shop.orders SET state = 'paid' WHERE id = 77")
        bucket.rows("shop.orders", 1, f'"I","orders","shop",{tidb.tso()},77,"order 77","paid"', version=version)
        bucket.metadata(tidb.tso())

    def checkpoint_of(bucket: SmallBucket) -> int:
        """The bucket's checkpoint."""
        return int(json.loads((bucket.root / "metadata").read_text(encoding="utf-8"))["checkpoint-ts"])

    @pytest.fixture
    def another_tidb() -> Iterator[DatabaseServer]:
        """A TiDB that is not the source."""
        with servers.tidb() as found:
            yield found

    @pytest.mark.parametrize("kind", ["mariadb", "mysql", "tidb"])
    def test_one_command_makes_an_equal_replica(
        kind: str, request: pytest.FixtureRequest, tidb: DatabaseServer, tmp_path: Path
    ) -> None:
        """`run --source` exports all tables, loads them and follows, with kills at any time; keys, views and rows are the source's."""
        target: DatabaseServer = request.getfixturevalue(kind if kind != "tidb" else "another_tidb")
        bucket = source_of(tidb, tmp_path)
        words = ("--source", f"tidb://root@127.0.0.1:{tidb.port}/")
        # Within the export, right after it, within the load, and after that; once more, later each time.
        for number, event in enumerate(("export_started", "export_finished", "load_started", "load_finished") * 2):
            with program(arguments(bucket, target, *words), tmp_path / f"log {number}") as running:
                past = (event, "ddl_started", "round_finished")
                wait_until(event, lambda running=running, past=past: any(map(running.events, past)))  # type: ignore[misc]
                time.sleep(0.15 * number)
                running.signal_all(SIGKILL)
        with program(arguments(bucket, target, *words), tmp_path / "log") as running:
            wait_until("loaded", lambda: "  loading  " not in command("load", server=target).stdout)
            change(tidb, bucket)
            running.wait_for("round_finished", checkpoint=checkpoint_of(bucket))
            wait_until("healthy", lambda: command("status", server=target).returncode == 0)
            verified = command("verify", *words, "--json", server=target)
        found = {str(each["names"][0]["table"]): each["outcome"] for each in json.loads(verified.stdout)["tables"]}
        assert found == dict.fromkeys(("orders", "items", "empty", "open_orders"), "equal"), verified.stdout
        assert target.query("SELECT COUNT(*), SUM(state = 'paid') FROM shop.orders") == ((20_000, 1),)
        assert target.query("SELECT COUNT(*) FROM shop.open_orders") == ((19_999,),)
        assert {str(each[2]) for each in target.query("SHOW INDEX FROM shop.orders")} >= {
            "PRIMARY",
            "by_name",
            "one_of",
        }
