"""Faults of buckets, machines and states, planted for real: `doctor` names each with its remedy, and nothing else."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.cli.endings import ExitCode, answered
from storage_consumer.errors import ConfigError
from storage_consumer.operating.checks import Verdict
from storage_consumer.target.state_tables import MIGRATED
from tests.contract.doctor_rigs import Fault, Scene, fault, planted_and_mended, scene, silent_port
from tests.contract.doctor_rigs import now_ts as now
from tests.harness.s3_server import READ_ONLY, S3Server, S3User
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, CREATE_TABLE, column, row, ts

pytestmark = pytest.mark.server
WARN, FAIL = Verdict.WARN, Verdict.FAIL
DAY = 86_400.0
STRANGER = S3User(access_key="WRONG", secret_access_key="very/wrong")  # noqa: S106 - of nobody


@pytest.fixture
def there(mariadb: DatabaseServer, tmp_path: Path) -> Scene:
    """All is well."""
    return scene(mariadb, tmp_path)


def given(**options: object) -> Any:
    """Plant options."""
    return lambda there: there.options.update(options)


def environment(**values: str) -> Any:
    """Plant variables of the environment."""
    return lambda there: there.environ.update(values)


def metadata(content: int | str) -> Any:
    """Plant a ``metadata``."""
    return lambda there: there.bucket.metadata(content)


def written(path: str, content: str) -> Any:
    """Plant a file in the bucket."""

    def plant(there: Scene) -> None:
        there.bucket.write(path, content)

    return plant


def another_java(said: str) -> Any:
    """Plant a Java that says this of its version."""

    def plant(there: Scene) -> None:
        home = there.bucket.root.parent / "java"
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
        (home / "bin" / "java").chmod(0o755)
        there.environ["JAVA_HOME"] = str(home)

    return plant


def no_java(there: Scene) -> None:
    """Neither variable names a Java."""
    there.environ.pop("JAVA_HOME", None)
    there.environ["PATH"] = str(there.bucket.root)


@contextmanager
def full_folder(there: Scene) -> Iterator[None]:
    """A file system of 1 MiB."""
    folder = there.bucket.root.parent / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    there.environ["SPARK_LOCAL_DIRS"] = str(folder)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def stored(checkpoint: int) -> Any:
    """Plant a state that has come to this checkpoint."""

    @contextmanager
    def plant(there: Scene) -> Iterator[None]:
        state = there.state()
        state.progress.save(
            tables=[], sequences={}, checkpoint=checkpoint, storage_checkpoint=checkpoint, lowest=checkpoint
        )
        yield
        state.close()

    return plant


def versioned(version: int) -> Any:
    """Plant a state of another version."""

    def plant(there: Scene) -> None:
        there.state().close()
        there.sql(f"UPDATE storage_consumer.version SET version = {version}")

    return plant


def no_zone(there: Scene) -> None:
    """A table with a TIMESTAMP column, and nobody says in which zone."""
    columns = (column("id", "INT", key=True), column("t", "TIMESTAMP"))
    there.bucket.schema("d.c", ts(4), "CREATE TABLE c (id INT PRIMARY KEY, t TIMESTAMP)", CREATE_TABLE, columns)
    there.options["tz"] = None


def one_folder(there: Scene) -> None:
    """A partitioned table whose files lie in no partition's folder."""
    query = "CREATE TABLE p (id INT PRIMARY KEY, name VARCHAR(20)) PARTITION BY HASH (id) PARTITIONS 2"
    there.bucket.schema("d.p", ts(4), query, CREATE_TABLE)
    there.bucket.rows("d.p", 1, row("d.p", 5, '1,"x"'), version=ts(4))


def parent_folder(there: Scene) -> None:
    """The folder above."""
    there.options["upstream_uri"] = there.bucket.root.parent.as_uri() + "?protocol=csv"


FAULTS = (
    fault("no such folder", "bucket-reachable", FAIL, "does not exist", given(upstream_uri="file:///no/such/folder?protocol=csv")),
    fault("no metadata", "bucket-metadata", FAIL, "sink URI", lambda there: (there.bucket.root / "metadata").unlink()),
    fault("the folder above", "bucket-metadata", FAIL, ("--upstream-uri file://", "/bucket"), parent_folder, also=("bucket-layout",)),
    fault("torn metadata", "bucket-metadata", FAIL, "no checkpoint-ts", metadata('{"checkpoint-')),
    fault("metadata of tomorrow", "bucket-metadata", FAIL, "ahead of the clock", metadata(now(9 * DAY))),
    fault("a changefeed that stands still", "bucket-checkpoint-age", WARN, "changefeed query", metadata(now(-3600))),
    fault("another protocol", "bucket-settings", FAIL, ("canal-json", "--config"), lambda there: given(upstream_uri=f"{there.bucket.root.as_uri()}?protocol=canal-json&enable-tidb-extension=true")(there)),
    fault("another delimiter", "bucket-settings", FAIL, "delimiter", given(delimiter="|")),
    fault("no time zone", "bucket-settings", FAIL, ("d.c", "--tz '<ZONE>'"), no_zone),
    fault("something foreign", "bucket-layout", WARN, "strange.bin", written("d/a/strange.bin", "x")),
    fault("partitions in one folder", "bucket-layout", WARN, ("partitions of d.p write into one folder", "inspect"), one_folder),
    fault("a damaged schema file", "bucket-layout", WARN, "schema", written("d/b/meta/schema_1_0000000001.json", "{")),
    fault("JAVA_HOME is wrong", "spark-java", FAIL, ("JAVA_HOME is /nowhere", "Unset"), environment(JAVA_HOME="/nowhere")),
    fault("no Java", "spark-java", FAIL, "Install Java 17", no_java),
    fault("an old Java", "spark-java", FAIL, "Java 11", another_java('openjdk version "11.0.2" 2019-01-15')),
    fault("a very old Java", "spark-java", FAIL, "is Java 8", another_java('java version "1.8.0_292"')),
    fault("no Java at all", "spark-java", FAIL, "does not tell its version", another_java("hello")),
    fault("no folder for Spark", "spark-local-dirs", FAIL, ("/no/such/dir", "SPARK_LOCAL_DIRS"), environment(SPARK_LOCAL_DIRS="/no/such/dir")),
    fault("a newer state", "state-schema", FAIL, ("version 999", "--state-schema"), versioned(999)),
    fault("an older state", "state-schema", WARN, ("migrates it", "Back it up"), versioned(max(MIGRATED))),
)  # fmt: skip


@pytest.mark.parametrize("planted", FAULTS, ids=str)
def test_each_fault_is_named(planted: Fault, there: Scene) -> None:
    """The check of the fault says it with its remedy, and no other check does."""
    planted_and_mended(planted, there)


@pytest.mark.root
def test_a_full_folder(there: Scene) -> None:
    """A folder for Spark without room is named."""
    planted_and_mended(fault("full", "spark-local-dirs", FAIL, "1 MiB free", full_folder), there)


def test_files_that_expire(there: Scene) -> None:
    """A checkpoint that is older than half of the expiry is warned of, one beyond it fails."""
    there.options["config"] = {"sink": {**CONFIG["sink"], "cloud-storage-config": {"file-expiration-days": 4}}}  # type: ignore[dict-item]
    assert there.alarms() == {}
    for days, verdict in ((1, None), (3, WARN), (5, FAIL)):
        with stored(now(-days * DAY))(there):
            found = there.alarms().get("bucket-expiry")
        assert (found and found.verdict) == verdict
        there.sql("DROP DATABASE storage_consumer")


def policy(bucket: str, readable: list[str]) -> str:
    """A policy by which the reader may list, and read these keys."""
    who = {"AWS": ["arn:aws:iam:::user/reader"]}
    places = [[f"arn:aws:s3:::{bucket}"], [f"arn:aws:s3:::{bucket}/{key}" for key in readable]]
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Principal": who, "Action": [action], "Resource": place}
                for action, place in zip(reversed(READ_ONLY), places, strict=True)
            ],
        }
    )


@pytest.fixture
def stored_bucket(s3: S3Server, there: Scene) -> tuple[Scene, str]:
    """The same bucket in S3, and its name."""
    name = f"doctor-{uuid.uuid4().hex}"
    s3.upload(there.bucket.root, name, "feed")
    there.options["upstream_uri"] = s3.uri(name, "feed", s3.reader, protocol="csv")
    return there, name


def test_list_and_read_suffice(stored_bucket: tuple[Scene, str]) -> None:
    """With rights to list and to read all is well."""
    assert stored_bucket[0].alarms() == {}


@pytest.mark.parametrize(
    "readable",
    [
        ["feed/metadata", "feed/d/meta/*", "feed/d/a/meta/*", "feed/d/b/meta/*"],
        ["feed/metadata", "feed/d/a/4*", "feed/d/b/4*"],
        ["feed/d/*"],
    ],
)
def test_a_right_to_read_is_missing(stored_bucket: tuple[Scene, str], s3: S3Server, readable: list[str]) -> None:
    """What may be listed and not read is named, with the right: schema files, data files, or metadata."""
    there, name = stored_bucket
    s3.client(s3.writer).put_bucket_policy(Bucket=name, Policy=policy(name, readable))
    found = there.alarms()
    assert [*found] == ["bucket-layout"]
    assert found["bucket-layout"].verdict is FAIL
    assert f"access to s3://{name}/feed/" in found["bucket-layout"].text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s3, _: s3.uri("no-such-bucket", "feed", s3.reader, protocol="csv"), "no-such-bucket"),
        (lambda s3, name: s3.uri(name, "feed", STRANGER, protocol="csv"), "refused"),
        (lambda s3, name: s3.uri(name, "feed", s3.reader, protocol="csv").replace(s3.endpoint.split(":")[-1], "1"), "127.0.0.1:1"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_listed(stored_bucket: tuple[Scene, str], s3: S3Server, change: Any, says: str) -> None:
    """A wrong bucket, wrong keys and a wrong endpoint are named, without any key."""
    there, name = stored_bucket
    there.options["upstream_uri"] = change(s3, name)
    found = there.alarms()
    assert [*found] == ["bucket-reachable"]
    assert says in found["bucket-reachable"].text
    assert "very/wrong" not in str(found)


@pytest.mark.slow
def test_a_silent_store(there: Scene) -> None:
    """A store that accepts a connection and says no more is one fault with a remedy, and is waited for once."""
    with silent_port() as port:
        keys = "access-key=a&secret-access-key=very-wrong"
        uri = f"s3://b/feed?protocol=csv&endpoint=http://127.0.0.1:{port}&{keys}"
        there.options |= {"upstream_uri": uri, "connect_timeout": "1s"}
        begun = time.monotonic()
        found = there.alarms()
    assert [*found] == ["bucket-reachable"]
    assert "firewall" in found["bucket-reachable"].text
    assert time.monotonic() - begun < 18  # a look has 10 s


def test_what_was_not_given_is_not_looked_at(there: Scene) -> None:
    """With a bucket alone nothing is asked of a target, and the other way round; with neither there is nothing to do."""
    for end, prefix in (("downstream_uri", "state-"), ("upstream_uri", "bucket-")):
        kept = there.options.pop(end)
        found = there.examine()
        assert {each.verdict for name, each in found.items() if name.startswith(prefix)} == {Verdict.NOT_LOOKED_AT}
        assert there.alarms() == {}
        there.options[end] = kept
    with pytest.raises(ConfigError, match="nothing to look at"):
        answered("doctor", {}, {})


def test_an_export_that_is_gone(there: Scene, tmp_path: Path) -> None:
    """It is a finding that names the option, also without a target, which could tell whether the feed has begun."""
    there.options["dump"] = (tmp_path / "gone").as_uri()
    del there.options["downstream_uri"]
    found = there.examine()["bucket-export"]
    assert found.verdict == Verdict.FAIL
    assert found.text.startswith("the export of --dump could not be read: ")


def test_exit_codes_and_document(there: Scene) -> None:
    """Warnings end with 0, a fault with 4; an unknown group is refused, and the document has stable keys."""
    there.bucket.metadata(now(-3600))
    assert answered("doctor", there.options, there.environ).code == ExitCode.DONE
    there.options["delimiter"] = "|"
    assert answered("doctor", there.options, there.environ).code == ExitCode.TABLES_STOPPED
    assert answered("doctor", {**there.options, "only": "target,state"}, there.environ).code == ExitCode.DONE
    with pytest.raises(ConfigError, match="did you mean `target`"):
        answered("doctor", {**there.options, "only": "targets"}, there.environ)
    document = json.loads(answered("doctor", {**there.options, "json": "true"}, there.environ).text)
    assert {*document} == {"verdict", "bucket", "target", "counts", "findings"}
    assert document["verdict"] == "fail"
    assert {*document["findings"][0]} == {"check", "group", "verdict", "text", "remedy", "statements"}


def test_no_secret_is_shown(there: Scene) -> None:
    """The password of a login that is refused stands nowhere."""
    there.options["downstream_uri"] = f"mysql://root:my%20secret@127.0.0.1:{there.server.port}/"
    for words in ({}, {"json": "true"}):
        text = answered("doctor", {**there.options, **words}, there.environ).text
        assert "my secret" not in text
        assert "my%20secret" not in text
