"""``verify --repair`` and ``load --keys`` as commands, beside a program that follows a source."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest

from tests.campaigns.repairs import Changefeed, WholeFiles, begin
from tests.harness.program import command, program
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]


if "tidb" in KINDS:  # else there is no such source

    def test_rows_are_mended_while_both_sides_go_on(
        tidb: DatabaseServer, mariadb: DatabaseServer, tmp_path: Path
    ) -> None:
        """Damaged rows of a table that changes are printed, mended and equal; keys that are named come anew; status has no difference left."""
        bucket = WholeFiles(root=tmp_path / "bucket")
        feed = Changefeed(source=tidb, bucket=bucket, rate=50, rows=1_000, dice=random.Random(1))  # noqa: S311 - not for secrets
        feed.prepare()
        (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
        ends = ["--upstream-uri", bucket.uri, "--config", str(tmp_path / "changefeed.toml"), "--tz", "UTC"]
        run = [*ends, "--downstream-uri", mariadb.uri, "--flush-interval", "500ms", "--start-ts", str(feed.began)]
        source = ("--source", f"tidb://root@127.0.0.1:{tidb.port}/")
        changing = threading.Thread(target=feed.run, daemon=True)
        with program(run, tmp_path / "log") as running:
            begin(running, feed, mariadb)
            changing.start()
            mariadb.query("UPDATE d.big SET name = 'damaged' WHERE id IN (10, 11, 12)")
            mariadb.query("DELETE FROM d.big WHERE id = 13")
            mariadb.query("INSERT INTO d.big VALUES (-1, 'surplus')")
            shown = command("verify", "--repair=print", "--table", "d.big", *source, server=mariadb)
            assert (shown.returncode, "DELETE FROM `d`.`big` WHERE " in shown.stdout) == (4, True), shown
            assert "SET SESSION foreign_key_checks = 0" in shown.stdout
            mended = command("verify", "--repair", "--table", "d.big", *source, "--json", server=mariadb)
            (table,) = json.loads(mended.stdout)["tables"]
            assert (mended.returncode, table["outcome"]) == (0, "equal"), mended
            assert "mended as of" in table["notes"][-1]
            mariadb.query("DELETE FROM d.big WHERE id IN (20, 21)")
            keys = command("load", "--table", "d.big", "--keys", "[20, 21, -7]", *source, server=mariadb)
            assert (keys.returncode, "both sides are equal there" in keys.stdout) == (0, True), keys
            feed.stop.set()
            changing.join()
            running.wait_for("round_finished", checkpoint=feed.committed)
            assert "different" not in command("status", server=mariadb).stdout
            assert command("verify", *source, server=mariadb).returncode == 0
        assert feed.fault is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("verify", "--repair-limit", "5", "--source", "tidb://root@127.0.0.1:1/"),
            "--repair-limit goes with --repair",
        ),
        (
            ("verify", "--repair=all", "--source", "tidb://root@127.0.0.1:1/"),
            "--repair: one of true, print is expected",
        ),
        (("load", "--keys", "[1]"), "--keys goes with --table and --source"),
        (
            ("load", "--table", "d.t", "--source", "tidb://root@127.0.0.1:1/", "--keys", "1"),
            "a JSON list of keys is expected",
        ),
    ],
)
def test_wrong_arguments(mariadb: DatabaseServer, words: tuple[str, ...], told: str) -> None:
    """They end with code 2, before any server is asked."""
    done = command(*words, server=mariadb)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
