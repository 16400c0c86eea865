"""``storage-consumer run`` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.accounts import protected
from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.locks import lock, wait_for_a_blocked_write
from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer, free_port
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")
SCRIPT = str(Path(sysconfig.get_path("scripts")) / "storage-consumer")
PASSWORD = "ge/heim+%40 w0rt"  # noqa: S105 - of a user that lives as long as a test
IN_URI = "ge%2Fheim%2B%2540%20w0rt"
STOP_SECONDS = 10


@pytest.fixture(name="protected")
def protected_server(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    """The server, with a user ``app`` who may do all and has `PASSWORD`."""
    with protected(mariadb, PASSWORD) as server:
        yield server


@pytest.fixture
def small(tmp_path: Path) -> SmallBucket:
    """A bucket with one table and one row."""
    bucket = SmallBucket(root=tmp_path / "small")
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    return bucket


def of_small(bucket: SmallBucket, downstream: str) -> list[str]:
    """Arguments for one round over a small bucket."""
    config = str(bucket.root.with_name("changefeed.toml"))
    return ["--upstream-uri", bucket.uri, "--config", config, "--downstream-uri", downstream, "--once"]


def without_secret(running: Program) -> bool:
    """Whether nothing that the program said holds the password, in any spelling."""
    return not any(secret in running.text() for secret in (PASSWORD, IN_URI, "heim", "w0rt"))


def stopped(running: Program) -> int:
    """The exit code after one SIGTERM, which must come in time; the last line says the code too."""
    began = time.monotonic()
    running.signal(signal.SIGTERM)
    code = running.end(STOP_SECONDS)
    assert time.monotonic() - began < STOP_SECONDS
    assert running.events("stopped")[-1]["exit_code"] == code
    return code


def test_continuous(protected: DatabaseServer, tmp_path: Path) -> None:
    """It follows a bucket that grows, ends on SIGTERM with 0, and started again goes on without reading what is finished (U5)."""
    bucket, config = tmp_path / "bucket", SHOP.write_config(tmp_path)
    bucket.mkdir()
    upstream = ["--upstream-uri", SHOP.sink_uri(bucket), "--config", str(config), "--flush-interval", "200ms"]
    upstream += ["--tz", "UTC", "--ddl-at-checkpoint-wait", "1s", "--log-level", "debug"]
    where = f"127.0.0.1:{protected.port}/"
    with program([*upstream, "--downstream-uri", f"mysql://app:{IN_URI}@{where}"], tmp_path / "first") as running:
        for cut in SHOP.cuts[:4]:
            SHOP.materialise(cut, bucket)
            running.wait_for("round_finished", checkpoint=cut.checkpoint_ts)
            assert differences(protected, SHOP.golden(cut)) == ()
        assert stopped(running) == 0
        assert without_secret(running)
        read = sum(event["files"] for event in running.events("round_finished"))
    (tmp_path / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    last = SHOP.cuts[-1]
    SHOP.materialise(last, bucket)
    secret = ["--downstream-password-file", str(tmp_path / "password")]
    with program([*upstream, "--downstream-uri", f"mysql://app@{where}", *secret], tmp_path / "second") as running:
        done = running.wait_for("round_finished", checkpoint=last.checkpoint_ts)
        assert stopped(running) == 0
        assert without_secret(running)
    assert differences(protected, SHOP.golden(last)) == ()
    data_files = {number: sum(path.endswith(".csv") for path in SHOP.cuts[number].files) for number in (-2, -1)}
    assert done["finished_files"] == data_files[-2]
    assert done["files"] == data_files[-1] - data_files[-2]
    assert read >= data_files[-2]


def test_signals_in_the_middle_of_a_write(mariadb: DatabaseServer, small: SmallBucket, tmp_path: Path) -> None:
    """Where a write does not end, one SIGTERM ends the program in time with 0, a second one at once with 1; nothing is lost."""
    arguments = [*of_small(small, mariadb.uri)[:-1], "--flush-interval", "200ms"]
    with program(arguments, tmp_path / "first") as running:
        running.wait_for("round_finished", checkpoint=ts(9))
        with lock(mariadb, "d.t", 2):
            small.rows("d.t", 2, row("d.t", 12, "2", '"two"'), row("d.t", 12, "3", '"three"'))
            small.metadata(ts(20))
            wait_for_a_blocked_write(mariadb)
            assert stopped(running) == 0
            assert running.events("stopped")[-1]["reason"] == "interrupted"
    with program(arguments, tmp_path / "second") as running, lock(mariadb, "d.t", 2):
        wait_for_a_blocked_write(mariadb)
        running.signal(signal.SIGTERM)
        running.wait_for("stop_requested")
        running.signal(signal.SIGTERM)
        assert running.end(STOP_SECONDS) == 1
        assert running.events("stopped")[-1]["reason"] == "abandoned"
    assert mariadb.query("SELECT * FROM d.t") == ((1, "one"),)
    with program([*arguments, "--once"], tmp_path / "third", command=[SCRIPT]) as running:
        assert running.end() == 0
    assert mariadb.query("SELECT * FROM d.t") == ((1, "one"), (2, "two"), (3, "three"))


# exit codes


@pytest.mark.quick
def test_exit_code_0_and_json(protected: DatabaseServer, small: SmallBucket, tmp_path: Path) -> None:
    """A round that reached the checkpoint ends with 0; every line is JSON; the password in the environment stays there."""
    environment = {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": PASSWORD}
    uri = f"mysql://app@127.0.0.1:{protected.port}/"
    with program(of_small(small, uri), tmp_path / "log", environment=environment) as running:
        assert running.end() == 0
        lines = [json.loads(line) for line in running.text().splitlines()]
        assert without_secret(running)
    assert [line["event"] for line in lines if line["event"] in ("started", "round_finished", "stopped")] == [
        "started",
        "round_finished",
        "stopped",
    ]
    assert protected.query("SELECT * FROM d.t") == ((1, "one"),)


def test_exit_code_1(small: SmallBucket, tmp_path: Path) -> None:
    """A target that does not answer for --retry-limit ends the program with 1."""
    uri = f"mysql://app:{IN_URI}@127.0.0.1:{free_port()}/"
    with program([*of_small(small, uri), "--retry-limit", "1s"], tmp_path / "log") as running:
        assert running.end() == 1
        assert running.events("failed")[-1]["kind"] == "TargetUnavailable"
        assert len(running.events("retry")) >= 1
        assert without_secret(running)


@pytest.mark.parametrize("how", ["URI", "environment", "file"])
def test_exit_code_2_for_a_wrong_password(
    protected: DatabaseServer, small: SmallBucket, tmp_path: Path, how: str
) -> None:
    """A login that the target refuses ends the program with 2, wherever the password came from, without showing it."""
    protected.query("ALTER USER app@'%' IDENTIFIED BY 'another'")
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    user = f"app:{IN_URI}" if how == "URI" else "app"
    arguments = of_small(small, f"mysql://{user}@127.0.0.1:{protected.port}/")
    arguments += ["--downstream-password-file", str(tmp_path / "password")] if how == "file" else []
    environment = {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": PASSWORD} if how == "environment" else {}
    with program([*arguments, "--log-level", "debug"], tmp_path / "log", environment=environment) as running:
        assert running.end() == 2
        assert "check user, password" in running.text()
        assert without_secret(running)


def test_exit_code_2_for_wrong_arguments(small: SmallBucket, mariadb: DatabaseServer, tmp_path: Path) -> None:
    """An unknown option, and a bucket that is not there, end the program with 2 and are named."""
    with program([*of_small(small, mariadb.uri), "--flush-intervall", "1s"], tmp_path / "option") as running:
        assert running.end() == 2
        assert "flush-interval" in running.text()
    missing = SmallBucket(root=tmp_path / "missing")
    with program(of_small(missing, mariadb.uri), tmp_path / "bucket") as running:
        assert running.end() == 2
        assert str(missing.root) in running.text()
    assert mariadb.databases() == ()


def test_filter_and_routes(mariadb: DatabaseServer, small: SmallBucket, tmp_path: Path) -> None:
    """Flags and environment decide which tables are taken and where they go; a rule that is wrong ends with 2 and is named (O12)."""
    small.create("d.out", "e.t")
    for table in ("d.out", "e.t"):
        small.rows(table, 1, row(table, 5, "2", '"two"'))
    small.metadata(ts(9))
    arguments = [*of_small(small, f"mysql://root@127.0.0.1:{mariadb.port}/"), "--filter", "*.*", "--filter", "!d.out"]
    routed = {
        "STORAGE_CONSUMER_ROUTE": "{matcher = ['d.*'], target-schema = 'copy', target-table = '{schema}_{table}'}"
    }
    with program(arguments, tmp_path / "good", environment=routed) as running:
        assert running.end() == 0
        finished = running.wait_for("round_finished")
    assert finished["rows"] == 2
    assert "object: data file of a table that the filter leaves out" in running.text()
    assert mariadb.query("SELECT * FROM copy.d_t") == ((1, "one"),)
    assert mariadb.query("SELECT * FROM e.t") == ((2, "two"),)
    assert set(mariadb.databases()) == {"copy", "e", "storage_consumer"}
    with program([*arguments, "--filter", "[d"], tmp_path / "bad") as running:
        assert running.end() == 2
    assert "--filter: the rule '[d' cannot be read" in running.text()
    with program(arguments, tmp_path / "moved") as running:
        assert running.end() == 2
    assert (
        "the rows of d.t are in copy.d_t of the target; with the current routes they would go to d.t" in running.text()
    )


def test_exit_codes_4_and_3(mariadb: DatabaseServer, small: SmallBucket, tmp_path: Path) -> None:
    """A round with a halted table ends with 4; one that could not get the lease with 3, in about the lease's time."""
    small.rows("d.t", 2, row("d.t", 6, "2", "broken"), row("d.t", 7, "3", '"three"'))
    with program(of_small(small, mariadb.uri), tmp_path / "halted") as running:
        assert running.end() == 4
        assert "broken" in running.events("table_halted")[0]["error"]
        assert str(running.events("go_on")[0]["command"]).startswith("storage-consumer run ")
    mariadb.query("UPDATE storage_consumer.lease SET holder = 'elsewhere', expires_at = NOW(6) + INTERVAL 1 HOUR")
    with program([*of_small(small, mariadb.uri), "--lease-ttl", "3s"], tmp_path / "lease") as running:
        assert running.end() == 3
        assert "elsewhere" in running.events("failed")[-1]["error"]


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"]], ids=" ".join)
def test_both_names_are_one_program(arguments: list[str]) -> None:
    """``storage-consumer`` and ``python -m storage_consumer`` say the same."""
    said = [
        subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout
        for command in ([SCRIPT], [sys.executable, "-m", "storage_consumer"])
    ]
    assert said[0] == said[1]
    assert "storage-consumer" in said[0]


@pytest.mark.parametrize("home", [{}, {"HOME": "/nowhere", "HADOOP_USER_NAME": "me"}], ids=["without a home", "named"])
def test_a_user_without_an_account(small: SmallBucket, mariadb: DatabaseServer, home: dict[str, str]) -> None:
    """A container may run as a number that no account has: Spark starts all the same, and rows are written."""
    nobody = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    environment = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "TMPDIR") if name in os.environ} | home
    done = subprocess.run(
        [*nobody, sys.executable, SCRIPT, "run", *of_small(small, mariadb.uri)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, mariadb.query("SELECT * FROM d.t")) == (0, ((1, "one"),)), done.stderr
