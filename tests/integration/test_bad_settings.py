"""What a wrong bucket, a wrong target and wrong rights get: an error that says what to do, and nothing is touched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage_consumer.errors import ConfigError, StorageUnavailable, TargetUnavailable
from tests.harness.servers import DatabaseServer, free_port
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.integration.rounds import consumer, content, of, once

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def one_table(bucket: SmallBucket) -> SmallBucket:
    """Table d.t with one row."""
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    return bucket


@contextmanager
def user(server: DatabaseServer, *grants: str) -> Iterator[str]:
    """A user with these privileges; the downstream URI."""
    server.query("CREATE USER weak@'%' IDENTIFIED BY 'geheim'")
    for grant in grants:
        server.query(f"GRANT {grant} TO weak@'%'")
    try:
        yield f"mysql://weak:geheim@127.0.0.1:{server.port}/"
    finally:
        server.query("DROP USER weak@'%'")


def test_state_of_another_bucket(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A state that belongs to another bucket is refused with both names and the option that helps."""
    once(one_table, mariadb)
    other = SmallBucket(root=one_table.root.with_name("other"))
    other.metadata(ts(9))
    with pytest.raises(ConfigError, match=f"belongs to the bucket file://{one_table.root}.*--state-schema"):
        once(other, mariadb)
    once(other, mariadb, state_schema="another_state")
    assert "another_state" in mariadb.databases()


def test_unknown_option(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """An unknown keyword is refused by the name of the nearest known one, and an unknown key of the config too."""
    with pytest.raises(ConfigError, match="flush_interval"):
        once(one_table, mariadb, flush_intervall="2s")
    with pytest.raises(ConfigError, match="include-commit-ts"):
        once(one_table, mariadb, config={"sink": {"csv": {"include-comit-ts": True}}})
    assert mariadb.databases() == ()


def test_csv_without_commit_ts(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """CSV whose rows carry no commit ts is refused by the name of TiCDC's option."""
    with pytest.raises(ConfigError, match="include-commit-ts"):
        once(one_table, mariadb, config={"sink": {}})
    assert mariadb.databases() == ()


def test_settings_that_nobody_tells(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """What the files show need not be told; a bucket that shows nothing yet is refused with the names, target untouched."""
    empty = SmallBucket(root=one_table.root.with_name("empty"))
    empty.create("d.t")
    empty.metadata(ts(9))
    with pytest.raises(ConfigError, match=r"--delimiter \(no data file yet\)"):
        once(empty, mariadb, config=None)
    assert mariadb.databases() == ()
    once(one_table, mariadb, config=None)
    assert content(mariadb, "d.t") == [(1, "one")]


def test_target_that_does_not_answer(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A target that nobody answers for is asked again up to the limit, then the run ends with its address."""
    port, began = free_port(), time.monotonic()
    with pytest.raises(TargetUnavailable, match=f"127.0.0.1:{port}"):
        once(one_table, mariadb, downstream_uri=f"mysql://root@127.0.0.1:{port}/", retry_limit="2s")
    assert 2 <= time.monotonic() - began < 20


def test_wrong_password(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A refused login is told at once, without the password."""
    with user(mariadb) as uri, pytest.raises(ConfigError, match="check user, password") as told:
        once(one_table, mariadb, downstream_uri=uri.replace("geheim", "falsch!"))
    assert "falsch" not in str(told.value)


def test_user_without_privileges(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """Who may not make the state schema is told so before anything is applied."""
    with user(mariadb) as uri, pytest.raises(ConfigError, match=r"GRANT ALL ON `storage\\_consumer`\.\* TO 'weak'@'%'"):
        once(one_table, mariadb, downstream_uri=uri)
    assert mariadb.databases() == ()


def test_bucket_that_does_not_exist(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A folder that is not there is refused by name, and the target is not touched."""
    missing = SmallBucket(root=one_table.root.with_name("missing"))
    with pytest.raises(ConfigError, match=str(missing.root)):
        once(missing, mariadb)
    assert mariadb.databases() == ()


def test_bucket_that_goes_away(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """A folder that vanishes between two rounds is waited for; when it is back the next round goes on."""
    away = one_table.root.with_name("away")
    with consumer(one_table, mariadb, retry_limit="0.5s") as running:
        running.run_once()
        one_table.root.rename(away)
        with pytest.raises(StorageUnavailable):
            running.run_once()
        threading.Timer(0.2, away.rename, [one_table.root]).start()
        time.sleep(0.5)
        one_table.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
        one_table.metadata(ts(20))
        running.run_once()
    assert content(mariadb, "d.t") == [(1, "one"), (2, "two")]


def test_settings_that_contradict_the_bucket(one_table: SmallBucket, mariadb: DatabaseServer) -> None:
    """Paths that show another date separator than the settings are refused before anything is applied."""
    with pytest.raises(ConfigError, match="date-separator"):
        once(one_table, mariadb, date_separator="none")
    assert mariadb.databases() == ("storage_consumer",)
    assert of(once(one_table, mariadb), "d.t").rows == 1
