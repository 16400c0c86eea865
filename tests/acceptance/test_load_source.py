"""``storage-consumer load --source`` as a process of its own: a table of a live TiDB, exported and loaded while both sides go on."""

from __future__ import annotations

import getpass
import json
import time
from pathlib import Path

import pytest

from storage_consumer.bucket.export import read_export
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.settings import Downstream, Server
from storage_consumer.errors import ConfigError, SnapshotLost
from storage_consumer.model import TableName
from storage_consumer.operating import exporting
from storage_consumer.operating.exporting import ExportWishes, exported
from tests.contract.test_verify import EVERY_TYPE, INSERT, ROWS
from tests.harness.program import command, program, run_arguments
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ID_NAME, SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
MODES = "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00'"
TABLES = {
    "t": EVERY_TYPE,
    "words": "CREATE TABLE words (word VARCHAR(40) COLLATE utf8mb4_general_ci, n INT, v INT AS (n + 1), PRIMARY KEY (word, n) CLUSTERED)",
    "loose": "CREATE TABLE loose (a INT, b VARCHAR(20))",
    "od`d.na-schema": "CREATE TABLE `od``d.na-schema` (id BIGINT PRIMARY KEY, `a ``b` TEXT)",
    "empty": "CREATE TABLE empty (id INT PRIMARY KEY)",
}
"""With every type, with a key of texts, without a key and with rows twice, with a name that needs care, without rows."""

SAFE_POINT = "WHERE VARIABLE_NAME = 'tikv_gc_safe_point'"


def go_time() -> str:
    """Now, as TiDB notes a safe point."""
    return time.strftime("%Y%m%d-%H:%M:%S +0000", time.gmtime())


@pytest.fixture
def source(tidb: DatabaseServer) -> DatabaseServer:
    """A TiDB with these tables."""
    tidb.allow_snapshots()
    tidb.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    with tidb.connect(database="shop") as connection, connection.cursor() as cursor:
        cursor.execute(MODES)
        for statement in TABLES.values():
            cursor.execute(statement)
        cursor.executemany(INSERT, ROWS)
        words = [(f"{letter}{number}", number) for letter in "bAéz ß7'%" for number in range(400)]
        cursor.executemany("INSERT INTO words (word, n) VALUES (%s, %s)", words)
        cursor.executemany("INSERT INTO loose VALUES (%s, %s)", [(number % 7, "twice") for number in range(1500)])
        cursor.executemany("INSERT INTO `od``d.na-schema` VALUES (%s, %s)", [(-5, "\\'"), (2**62, None), (7, "x")])
    return tidb


def server_of(source: DatabaseServer) -> Server:
    """How it is reached."""
    return Server(settings=Downstream(port=source.port))


if "tidb" in KINDS:  # else there is no such source

    def test_every_table_equals_its_source(mariadb: DatabaseServer, source: DatabaseServer, tmp_path: Path) -> None:
        """Each is exported, loaded into a feed that runs, and equal by `verify`; what the source gets meanwhile is not in it."""
        bucket = SmallBucket(root=tmp_path / "bucket")
        bucket.metadata(ts(1))
        reach = ["--source", f"tidb://root@127.0.0.1:{source.port}/", "--upstream-uri", bucket.uri]
        with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
            running.wait_for("round_finished", checkpoint=ts(1))
            for number, table in enumerate(TABLES):
                folder = tmp_path / f"export {number}"
                asked = command(
                    *("load", "--table", f"`shop`.`{table.replace('`', '``')}`", "--dump", folder.as_uri(), *reach),
                    server=mariadb,
                )
                assert (asked.returncode, asked.stderr) == (0, "")
                assert "exported as of" in asked.stdout
            # The target lacks the database, and until the bucket is beyond the copies it may still bring the statement that creates it.
            wait_until("all wait", lambda: command("load", server=mariadb).stdout.count("  loading  ") == len(TABLES))
            bucket.metadata(source.tso())
            wait_until("the tables have caught up", lambda: "5 ended" in command("load", server=mariadb).stdout)
            verified = command("verify", *reach[:2], "--json", server=mariadb)
        found = {str(TableName(**each["names"][0])): each["outcome"] for each in json.loads(verified.stdout)["tables"]}
        assert command("load", "--all", server=mariadb).stdout.count(f" UTC by {getpass.getuser()}@") == len(TABLES)
        assert found == {str(TableName(schema="shop", table=table)): "equal" for table in TABLES}, verified.stdout
        assert mariadb.query("SELECT COUNT(*) FROM shop.words") == ((3600,),)

    def test_pause_and_load_typed_one_after_the_other(
        mariadb: DatabaseServer, source: DatabaseServer, tmp_path: Path
    ) -> None:
        """As `verify` prints them: the load waits until the running consumer has obeyed the pause, and the table is that of the source."""
        bucket = SmallBucket(root=tmp_path / "bucket")
        bucket.schema("shop", ts(1), "CREATE DATABASE `shop`", 1)
        bucket.schema("shop.empty", ts(2), "CREATE TABLE `empty` (id INT PRIMARY KEY)", 3, ID_NAME[:1])
        bucket.metadata(ts(3))
        source.query("INSERT INTO shop.empty VALUES (7)")
        reach = ["--source", f"tidb://root@127.0.0.1:{source.port}/", "--upstream-uri", bucket.uri]
        with program([*run_arguments(bucket, mariadb), "--flush-interval", "5s"], tmp_path / "log") as running:
            running.wait_for("round_finished", checkpoint=ts(3))
            assert command("table", "pause", "--table", "shop.empty", server=mariadb).returncode == 0
            export = (tmp_path / "export").as_uri()
            asked = command("load", "--table", "shop.empty", "--dump", export, "--replace", *reach, server=mariadb)
            assert (asked.returncode, asked.stderr) == (0, "")
            bucket.metadata(source.tso())
            wait_until("it has caught up", lambda: "1 ended" in command("load", server=mariadb).stdout)
        assert mariadb.query("SELECT * FROM shop.empty") == ((7,),)

    @pytest.mark.parametrize(("table", "rows"), [("words", 3600), ("loose", 1500), ("empty", 0)])
    def test_many_files(
        source: DatabaseServer, tmp_path: Path, table: str, rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ranges of the key cover the table: each row is in one file, by a key of texts, by TiDB's row ids, and where there is none."""
        monkeypatch.setattr(exporting, "_FILE_BYTES", 1)
        monkeypatch.setattr(exporting, "_FEWEST_ROWS", 100)
        folder = LocalStorage(str(tmp_path / "export"))
        heard: list[int] = []
        made = exported(
            server_of(source), TableName(schema="shop", table=table), folder, ExportWishes(workers=3), heard.append
        )
        assert (made.rows, sum(heard)) == (rows, rows)
        assert made.files == -(-rows // 100)
        read = read_export(folder)
        assert (read.snapshot, len(read.tables[0].parts), read.time_zone) == (
            made.snapshot,
            made.files,
            "+00:00",
        )
        texts = [folder.read(part.path).decode() for part in read.tables[0].parts]
        lines = [line.rstrip(",;") for text in texts for line in text.splitlines() if line.startswith("(")]
        assert len(lines) == rows
        assert len(set(lines)) == (7 if table == "loose" else rows)

    def test_a_snapshot_that_is_collected_is_taken_anew(source: DatabaseServer, tmp_path: Path) -> None:
        """Where TiDB's garbage collection passes the snapshot, all is exported again as of a newer one; nothing of the former one is left."""
        name = TableName(schema="shop", table="words")
        folder = LocalStorage(str(tmp_path / "export"))
        heard: list[int] = []

        def collect(rows: int) -> None:
            heard.append(rows)
            if len(heard) == 3:
                source.query("DELETE FROM shop.words WHERE n >= 100")
                time.sleep(1.1)  # a safe point is given in whole seconds
                source.query(f"UPDATE mysql.tidb SET VARIABLE_VALUE = '{go_time()}' {SAFE_POINT}")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting, "_FILE_BYTES", 1)
            patch.setattr(exporting, "_FEWEST_ROWS", 100)
            made = exported(server_of(source), name, folder, ExportWishes(workers=1), collect)
        assert (made.rows, made.files, sum(heard), len(made.lost)) == (900, 9, 900, 1)
        assert "GC safe point" in made.lost[0]
        read = read_export(folder)
        assert read.snapshot == made.snapshot
        texts = [folder.read(part.path).decode() for part in read.tables[0].parts]
        assert sum(line.startswith("(") for text in texts for line in text.splitlines()) == 900

    def test_snapshots_that_are_lost_again_and_again_end_the_export(source: DatabaseServer, tmp_path: Path) -> None:
        """After three of them the error is told, and the folder holds no ``metadata``, so that nobody takes it for an export."""
        source.query(f"UPDATE mysql.tidb SET VARIABLE_VALUE = '20990101-00:00:00 +0000' {SAFE_POINT}")
        with pytest.raises(SnapshotLost, match="GC safe point"):
            exported(
                server_of(source), TableName(schema="shop", table="words"), LocalStorage(str(tmp_path)), ExportWishes()
            )
        assert not (tmp_path / "metadata").exists()

    def test_what_is_refused(source: DatabaseServer, mariadb: DatabaseServer, tmp_path: Path) -> None:
        """A folder that holds something, a table that the source lacks, a source that is no TiDB: nothing is written, and the reason is told."""
        name = TableName(schema="shop", table="words")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "metadata").write_text("", encoding="utf-8")
        for server, table, folder, why in (
            (server_of(source), name, "full", "is not empty: it holds metadata"),
            (server_of(source), TableName(schema="shop", table="nothing"), "a", "has no table shop.nothing"),
            (server_of(mariadb), name, "b", "no TiDB"),
        ):
            with pytest.raises(ConfigError, match=why):
                exported(server, table, LocalStorage(str(tmp_path / folder)), ExportWishes())
        assert [path.name for path in tmp_path.rglob("*")] == ["full", "metadata"]

    def test_the_changefeeds_own_folder_is_refused(
        mariadb: DatabaseServer, source: DatabaseServer, tmp_path: Path
    ) -> None:
        """An export among the changefeed's files would be taken for some of them: code 2, and nothing is written."""
        bucket = SmallBucket(root=tmp_path / "bucket")
        bucket.metadata(ts(1))
        with program([*run_arguments(bucket, mariadb), "--once"], tmp_path / "log") as running:
            assert running.end() == 0
        reach = ["--source", f"tidb://root@127.0.0.1:{source.port}/", "--upstream-uri", bucket.uri]
        for folder in (bucket.root, bucket.root / "export"):
            asked = command("load", "--table", "shop.words", "--dump", folder.as_uri(), *reach, server=mariadb)
            assert (asked.returncode, "changefeed's own folder" in asked.stderr) == (2, True)
        assert [path.name for path in bucket.root.iterdir()] == ["metadata"]

    def test_a_running_table_is_paused_first(mariadb: DatabaseServer, source: DatabaseServer, tmp_path: Path) -> None:
        """Changes that are applied after the export would be lost in it: the command says so, and after a pause it heals the table."""
        bucket = SmallBucket(root=tmp_path / "bucket")
        bucket.create("d.a")
        bucket.rows("d.a", 1, row("d.a", 2, "1", '"wrong"'))
        bucket.metadata(ts(3))
        source.query("CREATE DATABASE d")
        source.query("CREATE TABLE d.a (id INT PRIMARY KEY, name VARCHAR(20))")
        source.query("INSERT INTO d.a VALUES (1, 'right'), (2, 'right')")
        reach = ["--source", f"tidb://root@127.0.0.1:{source.port}/", "--upstream-uri", bucket.uri]
        load = ["load", "--table", "d.a", "--replace", "--dump", (tmp_path / "export").as_uri(), *reach]
        with program([*run_arguments(bucket, mariadb), "--flush-interval", "200ms"], tmp_path / "log") as running:
            running.wait_for("round_finished", checkpoint=ts(3))
            refused = command(*load, server=mariadb)
            assert (refused.returncode, "storage-consumer table pause --table d.a" in refused.stderr) == (2, True)
            assert not (tmp_path / "export").exists()
            assert command("table", "pause", "--table", "d.a", server=mariadb).returncode == 0
            wait_until("it is paused", lambda: "paused" in command("table", server=mariadb).stdout)
            asked = command(*load, server=mariadb)
            assert (asked.returncode, asked.stderr) == (0, "")
            running.wait_for("load_finished", table="d.a")
            bucket.metadata(source.tso())
            wait_until("it has caught up", lambda: "1 ended" in command("load", server=mariadb).stdout)
        assert mariadb.query("SELECT * FROM d.a ORDER BY id") == ((1, "right"), (2, "right"))
