"""Secrets planted in every place that takes one, and the search for them in all that the program leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.accounts import protected
from tests.harness.intruder import sockets_of
from tests.harness.planting import Planted, encoded
from tests.harness.program import ROOT, Program, program
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer, free_port, quoted
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
REFUSED = "ALTER TABLE `b` ADD COLUMN `note` INT AFTER `nowhere`"
OWN_SESSION = """
import logging, pathlib, sys, time
from pyspark.sql import SparkSession
from storage_consumer import Consumer
config, port, log, end = sys.argv[-6:-2]
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "true").config("spark.ui.port", port).getOrCreate()
logging.basicConfig(level=logging.DEBUG, filename=log)
with Consumer(config=config) as consumer:
    print(consumer.run_once())
    print('\\n{"event": "round"}', flush=True)
    while not pathlib.Path(end).exists():
        time.sleep(0.1)
"""
"""A program of a user that has a Spark session of its own, with a UI, and logs everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A bucket, a target, and what is planted around them."""

    planted: Planted
    password: str
    bucket: str
    upstream: str
    server: DatabaseServer
    home: Path

    def target(self, password: str | None = None, *, port: int = 0) -> str:
        """The target's URI with a password (None: the right one; empty: none)."""
        given = self.password if password is None else password
        return f"mysql://app{':' if given else ''}{encoded(given)}@127.0.0.1:{port or self.server.port}/"

    def run_arguments(self, downstream: str, *more: str) -> list[str]:
        """What ``run`` takes."""
        config = str(self.home / "changefeed.toml")
        return ["--upstream-uri", self.upstream, "--config", config, "--downstream-uri", downstream, *more]


@pytest.fixture
def place(mariadb: DatabaseServer, s3: S3Server, tmp_path: Path) -> Iterator[Place]:
    """Three tables in S3: one is fine, one has a statement that the target refuses, one a row that does not parse."""
    planted = Planted()
    small = SmallBucket(root=tmp_path / "bucket")
    small.create("d.a", "d.b", "d.c")
    small.rows("d.a", 1, row("d.a", 5, "1", '"one"'))
    small.schema("d.b", ts(4), REFUSED, 5)
    small.rows("d.c", 1, row("d.c", 5, "1", "broken"), row("d.c", 6, "2", '"two"'))
    small.metadata(ts(9))
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3.upload(small.root, bucket, "prefix")
    planted.spelled("key of the bucket", s3.reader.secret_access_key)
    password = planted.secret("password", joint="/+%ä中&=@:#?")
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    upstream = s3.uri(bucket, "prefix", s3.reader, protocol="csv")
    with protected(mariadb, password) as server:
        yield Place(planted=planted, password=password, bucket=bucket, upstream=upstream, server=server, home=tmp_path)


def environment(planted: Planted, home: Path) -> dict[str, str]:
    """All variables from which the program or a store's client may take a secret; Spark keeps an event log."""
    credentials = home / "credentials.json"
    content = {"type": "service_account", "private_key": planted.secret("private key", joint="\n")}
    credentials.write_text(json.dumps(content), encoding="utf-8")
    events, conf = home / "events", home / "conf"
    events.mkdir(exist_ok=True)
    conf.mkdir(exist_ok=True)
    defaults = f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
    (conf / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    names = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "AZURE_STORAGE_SAS_TOKEN")
    planted_ones = {name: planted.secret(name, joint="/+") for name in names}
    account = f"AccountName=a;AccountKey={planted.key('connection string')}"
    return {
        **planted_ones,
        "AWS_ACCESS_KEY_ID": planted.secret("AWS_ACCESS_KEY_ID", joint="X"),
        "AZURE_STORAGE_KEY": planted.key("AZURE_STORAGE_KEY"),
        "AZURE_STORAGE_CONNECTION_STRING": account,
        "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
        "STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": planted.secret("password variable"),
        "SPARK_CONF_DIR": str(conf),
    }


def written(home: Path, *names: str) -> str:
    """The text of all files with these names below `home`."""
    files = [path for name in names for path in home.rglob(name) if path.is_file()]
    assert files
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


def children(running: Program) -> dict[int, str]:
    """Process → command line, of the JVM and the workers; what the user wrote in the program's own stays there."""
    found = {}
    for entry in Path("/proc").iterdir():
        pid = int(entry.name) if entry.name.isdigit() else 0
        try:
            if pid and pid != running.process.pid and os.getpgid(pid) == running.process.pid:
                found[pid] = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def everything_in(server: DatabaseServer) -> str:
    """All that the target holds, as text."""
    tables = (
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('storage_consumer', 'd')"
    )
    return "\n".join(repr(server.query(f"SELECT * FROM {quoted(s)}.{quoted(t)}")) for s, t in server.query(tables))


def fetched(url: str) -> str:
    """What a web page says."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - a server of the test's own
        return str(answer.read().decode())


def test_run_and_crash(place: Place, s3: S3Server) -> None:
    """The real command shows no secret: in output, log file, Spark's event log, command lines, state, not in a crash either (S1)."""
    more = ["--log-level", "debug", "--log-file", str(place.home / "log"), "--flush-interval", "200ms", "--tz", "UTC"]
    arguments = place.run_arguments(place.target(), *more)
    around = environment(place.planted, place.home)
    with program(arguments, place.home / "output", environment=around) as running:
        deadline, lines = time.monotonic() + PATIENCE, children(running)
        while "round_finished" not in (place.home / "output").read_text() + _text(place.home / "log"):
            assert time.monotonic() < deadline
            assert running.process.poll() is None
            time.sleep(0.1)
            lines |= children(running)
        (java,) = (pid for pid, line in children(running).items() if "java" in line.split("\0")[0])
        assert len(lines) > 1
        os.kill(java, signal.SIGKILL)
        small = SmallBucket(root=place.home / "bucket")
        small.rows("d.a", 2, row("d.a", 12, "2", '"two"'))
        small.metadata(ts(20))
        s3.upload(small.root, place.bucket, "prefix")
        wait_until("the second row", lambda: len(place.server.query("SELECT * FROM d.a")) == 2)
        lines |= children(running)
        running.signal(signal.SIGTERM)
        assert running.end() == 4
    said = written(place.home, "output", "log")
    assert "Traceback" in said
    assert "Spark's JVM is gone" in said
    assert "storage-consumer ddl skip" in everything_in(place.server)
    assert place.server.query("SELECT * FROM d.a") == ((1, "one"), (2, "two"))
    asked = [ended_with([verb, "--downstream-uri", place.target()], around) for verb in ("ddl", "history")]
    assert [code for code, _ in asked] == [0, 0]
    said += "".join(text for _, text in asked)
    everywhere = "\n".join([said, written(place.home / "events", "*"), *lines.values(), everything_in(place.server)])
    assert place.planted.found(everywhere) == set()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_what_others_may_open(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """No other user of the machine can speak to a worker, or read the rows that Spark keeps on disk, however open the umask (S1)."""
    small = SmallBucket(root=tmp_path / "bucket")
    small.create("d.a")
    small.rows("d.a", 1, row("d.a", 5, "1", '"one"'))
    small.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    config = ("--config", str(tmp_path / "changefeed.toml"))
    arguments = ["--upstream-uri", small.uri, "--downstream-uri", mariadb.uri, *config]
    open_to_all = ("bash", "-c", 'umask 0; exec "$@"', "bash")
    with program(arguments, tmp_path / "output", within=open_to_all) as running:
        running.wait_for("round_finished", rows=1)
        spark = session(running)
        sockets, masks = sockets_of(spark), umasks(spark)
        assert {Path(path).stat().st_mode & 0o077 for path in sockets} == {0}
    assert masks == {0o077}


def session(running: Program) -> set[int]:
    """The JVM and the workers, which have a process group of their own."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # no process, or one that has just ended
            if os.getsid(pid := int(entry.name)) == running.process.pid != pid:
                found.add(pid)
    return found


def umasks(processes: Iterable[int]) -> set[int]:
    """The masks that these processes make their files with."""
    found = set()
    for pid in processes:
        with suppress(OSError):  # it has just ended
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
            found |= {int(line.split()[1], 8) for line in lines if line.startswith("Umask")}
    return found


def test_session_of_a_user(place: Place) -> None:
    """A Spark session that shows a UI and a root logger that takes everything get no secret from the library either (S1)."""
    (place.home / "own.py").write_text(OWN_SESSION, encoding="utf-8")
    changefeed = _text(place.home / "changefeed.toml")
    uris = f'[consumer]\nsink-uri = "{place.upstream}"\ndownstream-uri = "{place.target()}"\ntz = "UTC"\n'
    (place.home / "own.toml").write_text(changefeed + uris, encoding="utf-8")
    port, end = free_port(), place.home / "end"
    words = [str(place.home / "own.toml"), str(port), str(place.home / "log"), str(end)]
    command = [sys.executable, str(place.home / "own.py")]
    around = environment(place.planted, place.home) | {"PYSPARK_PYTHON": sys.executable}
    with program(words, place.home / "output", environment=around, command=command) as running:
        running.wait_for("round")
        api = f"http://127.0.0.1:{port}/api/v1/applications"
        (application,) = json.loads(fetched(api))
        pages = ("environment", "allexecutors", "jobs", "stages", "storage/rdd")
        shown = [fetched(f"{api}/{application['id']}/{page}") for page in pages]
        shown += [fetched(f"http://127.0.0.1:{port}/{page}/") for page in ("environment", "jobs", "executors")]
        assert '"sparkProperties"' in shown[0]
        shown += children(running).values()
        end.touch()
        assert running.end() == 0
    shown += [written(place.home, "output", "log"), written(place.home / "events", "*"), everything_in(place.server)]
    assert place.planted.found("\n".join(shown)) == set()


def test_what_fails_early(place: Place, s3: S3Server) -> None:
    """Refused logins and keys, a target that is away, and every other command say what they say without a secret (S2)."""
    planted = place.planted
    wrong = planted.secret("wrong password")
    file = place.home / "password"
    file.write_text(planted.secret("password file"), encoding="utf-8")
    key, token = planted.secret("wrong key", joint="/+"), planted.secret("wrong token", joint="/+=")
    bucket = place.upstream.partition("?")[0]
    refused = f"{bucket}?protocol=csv&endpoint={encoded(s3.endpoint)}&access-key={s3.reader.access_key}&secret-access-key={encoded(key)}"
    debug = ("--log-level", "debug", "--once", "--tz", "UTC", "--retry-limit", "100ms")
    config = ("--config", str(place.home / "changefeed.toml"))
    runs: dict[tuple[str, ...], int] = {
        ("run", *place.run_arguments(place.target(wrong), *debug)): 2,
        ("run", *place.run_arguments(place.target(""), *debug, "--downstream-password-file", str(file))): 2,
        ("run", *place.run_arguments(place.target(""), *debug)): 2,
        ("run", *place.run_arguments(place.target(port=free_port()), *debug)): 1,
        ("run", "--upstream-uri", refused, *config, "--downstream-uri", place.target(), *debug): 2,
        (
            "run",
            "--upstream-uri",
            f"{refused}&session-token={encoded(token)}",
            *config,
            *debug,
            "--downstream-uri",
            "mysql://h/",
        ): 2,
        (
            "run",
            "--upstream-uri",
            f"{bucket}?endpoint={encoded(s3.endpoint)}",
            *config,
            *debug,
            "--downstream-uri",
            "mysql://h/",
        ): 2,
        ("run", "--help"): 0,
        ("inspect", "--upstream-uri", place.upstream): 2,
        ("inspect", "--upstream-uri", refused): 2,
        ("ddl", "--downstream-uri", place.target(), "--json"): 2,
        ("ddl", "--downstream-uri", place.target(wrong)): 2,
        ("history", "--downstream-uri", place.target(port=free_port())): 1,
    }
    around = environment(planted, place.home)
    with ThreadPoolExecutor(3) as pool:
        ended = dict(zip(runs, pool.map(lambda words: ended_with(words, around), runs), strict=True))
    assert {words[:1] + words[-2:]: code for words, (code, _) in ended.items()} == {
        words[:1] + words[-2:]: code for words, code in runs.items()
    }, [text for _, text in ended.values()]
    assert planted.found("\n".join(text for _, text in ended.values())) == set()


def ended_with(words: Sequence[str], around: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and all output of one command."""
    done = subprocess.run(
        [sys.executable, "-m", "storage_consumer", *words],
        cwd=ROOT,
        env={**os.environ, **around},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout
