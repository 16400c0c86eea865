"""``storage-consumer inspect`` as a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.program import ROOT
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket

pytestmark = [pytest.mark.acceptance]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")


def inspect(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STORAGE_CONSUMER_")}
    command = [sys.executable, "-X", "importtime", "-m", "storage_consumer", "inspect", *words]
    return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False, timeout=120)


def start(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, Spark and all."""
    command = [sys.executable, "-m", "storage_consumer", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Its errors, without Python's list of imports."""
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("import time:"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The recorded shop after its last cut."""
    SHOP.materialise(SHOP.cuts[-1], tmp_path / "bucket")
    return tmp_path / "bucket"


def test_a_bucket_is_explained_without_target_and_spark(shop: Path) -> None:
    """The text names protocol, tables and what is missing; nothing of Spark or the database driver is loaded; nothing is written."""
    before = {path: path.stat().st_mtime_ns for path in shop.rglob("*")}
    done = inspect("--upstream-uri", shop.as_uri())
    assert done.returncode == 2, said(done)
    for part in ("shop.orders", "delimiter", "inferred from", "missing: --tz", "storage-consumer run"):
        assert part in done.stdout
    assert not [line for line in done.stderr.splitlines() if line.endswith((" pyspark", " pymysql"))]
    assert {path: path.stat().st_mtime_ns for path in shop.rglob("*")} == before


def test_with_everything_said_the_exit_code_is_0(shop: Path) -> None:
    """The document holds all settings; with the time zone nothing is missing."""
    done = inspect("--upstream-uri", shop.as_uri(), "--tz", "UTC", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["missing"], document["contradictions"]) == (0, [], [])
    assert document["settings"]["protocol"]["value"] == "csv"
    assert document["checkpoint"] == SHOP.cuts[-1].checkpoint_ts


def test_a_contradiction_ends_with_2(shop: Path, tmp_path: Path) -> None:
    """A changefeed file that the bucket disproves is named with the setting, and all else is still shown."""
    config = tmp_path / "changefeed.toml"
    config.write_text("[sink.csv]\ninclude-commit-ts = true\ndelimiter = ';'\n")
    done = inspect("--upstream-uri", shop.as_uri(), "--config", str(config), "--tz", "UTC")
    assert done.returncode == 2
    assert "contradicts: --delimiter was given as ;" in done.stdout


def test_a_bucket_that_is_not_there(tmp_path: Path) -> None:
    """A folder that does not exist is a wrong argument; a server that does not answer is a failure."""
    done = inspect("--upstream-uri", (tmp_path / "nothing").as_uri())
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in said(done)
    keys = "access-key=AAAAAAAA&secret-access-key=hushhush"
    away = inspect("--upstream-uri", f"s3://bucket/x?endpoint=http://127.0.0.1:9&{keys}")
    assert (away.returncode, away.stdout) == (1, "")
    assert "hushhush" not in said(away)


@pytest.mark.server
def test_a_bucket_in_s3(shop: Path, s3: S3Server) -> None:
    """The same is found in S3, with a key that may only read."""
    s3.upload(shop, "inspected", "pre")
    done = inspect("--upstream-uri", s3.uri("inspected", "pre", s3.reader), "--tz", "UTC", "--json")
    assert done.returncode == 0, said(done)
    local = inspect("--upstream-uri", shop.as_uri(), "--tz", "UTC", "--json")
    here, there = json.loads(local.stdout), json.loads(done.stdout)
    assert {**there, "bucket": "", "command": ""} == {**here, "bucket": "", "command": ""}
    assert s3.reader.secret_access_key not in done.stdout


@pytest.mark.server
@pytest.mark.spark
def test_the_printed_command_goes_on(shop: Path, mariadb: DatabaseServer) -> None:
    """The command that inspect prints, with the target filled in, makes the target equal."""
    text = json.loads(inspect("--upstream-uri", shop.as_uri(), "--tz", "UTC", "--json").stdout)["command"]
    words = shlex.split(text.replace("mysql://<USER>@<HOST>:3306/", mariadb.uri))
    assert words.pop(0) == "storage-consumer"
    done = start(*words, "--once")
    assert done.returncode == 0, done.stderr[-3000:]
    assert differences(mariadb, SHOP.golden(SHOP.cuts[-1])) == ()


@pytest.mark.server
@pytest.mark.spark
def test_run_refuses_what_nothing_tells(tmp_path: Path, mariadb: DatabaseServer) -> None:
    """A bucket without data whose settings nobody tells ends run with 2 and their names; the target is not touched."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.metadata(1)
    done = start("run", "--upstream-uri", bucket.root.as_uri(), "--downstream-uri", mariadb.uri, "--once")
    assert done.returncode == 2
    assert "--protocol (no data file yet)" in done.stderr
    assert mariadb.databases() == ()
