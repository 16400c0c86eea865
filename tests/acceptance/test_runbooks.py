"""What the runbooks in docs/operations/ promise, with the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus, Cut
from tests.harness.program import program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")
REPLICATED = ("shop", "storage_consumer")


def once(server: DatabaseServer, log: Path, *arguments: str) -> int:
    """Run one round; its exit code."""
    with program([*arguments, "--downstream-uri", server.uri, "--tz", "UTC", "--once"], log) as running:
        return running.end()


def shop(cut: Cut, folder: Path) -> list[str]:
    """Deliver a cut of the shop; the arguments that name the bucket."""
    SHOP.materialise(cut, folder / "bucket")
    return ["--upstream-uri", SHOP.sink_uri(folder / "bucket"), "--config", str(SHOP.write_config(folder))]


def copied(server: DatabaseServer, databases: Sequence[tuple[str, str]]) -> None:
    """Make each second database a copy of the first one, as a dump would."""
    server.query("SET GLOBAL foreign_key_checks = 0")
    for source, copy in databases:
        server.query(f"DROP DATABASE IF EXISTS {copy}")
        server.query(f"CREATE DATABASE {copy} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for (table,) in server.query(f"SHOW TABLES FROM {source}"):
            server.query(f"CREATE TABLE {copy}.`{table}` LIKE {source}.`{table}`")
            server.query(f"INSERT INTO {copy}.`{table}` SELECT * FROM {source}.`{table}`")
    server.query("SET GLOBAL foreign_key_checks = 1")


def test_two_changefeeds(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Two buckets go into one target, each with a state schema of its own; with that of the other one the start is refused."""
    codes = {}
    for name in ("one", "two"):
        bucket = SmallBucket(root=tmp_path / name)
        bucket.create(f"{name}.t")
        bucket.rows(f"{name}.t", 1, row(f"{name}.t", 5, "1", f'"{name}"'))
        bucket.metadata(ts(9))
        arguments = ["--upstream-uri", bucket.uri, "--include-commit-ts"]
        if name == "two":
            codes["same state"] = once(mariadb, tmp_path / "refused", *arguments)
        codes[name] = once(
            mariadb,
            tmp_path / f"{name}.log",
            *arguments,
            "--state-schema",
            f"consumer_{name}" if name == "two" else "storage_consumer",
        )
    assert codes == {"one": 0, "same state": 2, "two": 0}
    assert mariadb.query("SELECT * FROM one.t UNION ALL SELECT * FROM two.t") == ((1, "one"), (1, "two"))
    assert "belongs to the bucket" in (tmp_path / "refused").read_text(encoding="utf-8")


def test_a_target_from_a_backup(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Rows and state of one moment, brought back or to another place, are gone on from: the files since then are read again."""
    middle, last = SHOP.cuts[1], SHOP.cuts[-1]
    assert once(mariadb, tmp_path / "first", *shop(middle, tmp_path)) == 0
    copied(mariadb, [(name, f"{name}_backup") for name in REPLICATED])
    arguments = shop(last, tmp_path)
    assert once(mariadb, tmp_path / "second", *arguments) == 0
    copied(mariadb, [(f"{name}_backup", name) for name in REPLICATED])
    for name in REPLICATED:
        mariadb.query(f"DROP DATABASE {name}_backup")
    assert differences(mariadb, SHOP.golden(middle)) == ()
    assert once(mariadb, tmp_path / "third", *arguments) == 0
    assert differences(mariadb, SHOP.golden(last)) == ()


def test_files_below_what_is_needed_are_deleted(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """Data files below the numbers that status gives may go; the program does not miss them, over a restart either."""
    middle, last = SHOP.cuts[2], SHOP.cuts[-1]
    assert once(mariadb, tmp_path / "first", *shop(middle, tmp_path)) == 0
    command = [sys.executable, "-m", "storage_consumer", "status", "--files", "--json", "--batch"]
    said = subprocess.run([*command, "--downstream-uri", mariadb.uri], capture_output=True, text=True, check=True)
    status: dict[str, Any] = json.loads(said.stdout)
    assert status["needed"]["checkpoint"] == middle.checkpoint_ts
    deleted = list(delete_below(tmp_path / "bucket", status["files"]))
    assert len(deleted) > 5
    arguments = shop(last, tmp_path)
    for path in deleted:  # the recording has brought them back
        path.unlink(missing_ok=True)
    assert once(mariadb, tmp_path / "second", *arguments) == 0
    assert differences(mariadb, SHOP.golden(last)) == ()


def delete_below(bucket: Path, needed: Sequence[dict[str, Any]]) -> list[Path]:
    """Delete the data files that are no longer needed; return which."""
    gone = []
    for each in needed:
        for path in sorted((bucket / each["directory"]).glob("CDC*.csv")):
            if int(path.stem.removeprefix("CDC").rpartition("_")[2]) < each["needed_from"]:
                path.unlink()
                gone.append(path)
    return gone
