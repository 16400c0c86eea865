"""The target's password is changed while the program runs, as docs/operations/moves.md says."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.harness.program import Program, program
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
OLD, NEW = "altes-wort", "neues-wort"
BOTH = {
    "mariadb": "ALTER USER app@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('{old}') OR mysql_native_password USING PASSWORD('{new}')",
    "mysql": "ALTER USER app@'%' IDENTIFIED BY '{new}' RETAIN CURRENT PASSWORD",
}
"""Makes both passwords valid."""
ONE = {
    "mariadb": "ALTER USER app@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('{new}')",
    "mysql": "ALTER USER app@'%' DISCARD OLD PASSWORD",
}
"""Makes the old one invalid."""


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """A bucket with one table and one row."""
    made = SmallBucket(root=tmp_path / "bucket")
    made.create("d.t")
    made.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    made.metadata(ts(9))
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    (tmp_path / "password").write_text(OLD, encoding="utf-8")
    return made


def consuming(bucket: SmallBucket, server: DatabaseServer, name: str) -> AbstractContextManager[Program]:
    """The continuous program, with the password that the file has now."""
    place = bucket.root.parent
    arguments = ["--upstream-uri", bucket.uri, "--config", str(place / "changefeed.toml"), "--flush-interval", "200ms"]
    arguments += ["--downstream-uri", f"mysql://app@127.0.0.1:{server.port}/", "--lease-ttl", "3s"]
    return program([*arguments, "--downstream-password-file", str(place / "password")], place / name)


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_new_password(kind: str, bucket: SmallBucket, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With both passwords valid for a while, a standby that knows the new one takes over; the old one is then of no use."""
    server: DatabaseServer = request.getfixturevalue(kind)
    server.query(f"CREATE USER app@'%' IDENTIFIED BY '{OLD}'")
    server.query("GRANT ALL ON *.* TO app@'%'")
    try:
        with consuming(bucket, server, "one") as one:
            one.wait_for("round_finished", checkpoint=ts(9))
            server.query(BOTH[kind].format(old=OLD, new=NEW))
            (tmp_path / "password").write_text(NEW, encoding="utf-8")
            with consuming(bucket, server, "two") as two:
                two.wait_for("lease_waiting")
                one.signal(signal.SIGTERM)
                two.wait_for("lease_acquired")
                assert one.end() == 0
                server.query(ONE[kind].format(old=OLD, new=NEW))
                bucket.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
                bucket.metadata(ts(20))
                two.wait_for("round_finished", checkpoint=ts(20))
        assert server.query("SELECT * FROM d.t") == ((1, "one"), (2, "two"))
    finally:
        server.query("DROP USER app@'%'")


def test_new_password_without_overlap(bucket: SmallBucket, mariadb: DatabaseServer) -> None:
    """Where the old password is refused at once, the program ends with 1 at its next login, and loses nothing."""
    mariadb.query(f"CREATE USER app@'%' IDENTIFIED BY '{OLD}'")
    mariadb.query("GRANT ALL ON *.* TO app@'%'")
    try:
        with consuming(bucket, mariadb, "one") as one:
            one.wait_for("round_finished", checkpoint=ts(9))
            mariadb.query(f"ALTER USER app@'%' IDENTIFIED BY '{NEW}'")
            bucket.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
            bucket.metadata(ts(20))
            assert one.end() == 1
        (bucket.root.parent / "password").write_text(NEW, encoding="utf-8")
        with consuming(bucket, mariadb, "two") as two:
            two.wait_for("round_finished", checkpoint=ts(20))
        assert mariadb.query("SELECT * FROM d.t") == ((1, "one"), (2, "two"))
    finally:
        mariadb.query("DROP USER app@'%'")
