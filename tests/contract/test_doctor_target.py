"""Faults of targets, planted on real servers: `doctor` names each, and its statements mend it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from storage_consumer import Consumer
from storage_consumer.cli.doctor_command import doctor_input
from storage_consumer.operating.checks import Verdict, warn_at_start
from storage_consumer.session import Session
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.rights import ROW_RIGHTS
from storage_consumer.telemetry import listen
from tests.contract.doctor_rigs import PLAIN, Fault, Scene, fault, planted_and_mended, scene, silent_port
from tests.contract.test_plan import READS, WRITES, logged
from tests.harness.elsewhere import ADDRESS, elsewhere
from tests.harness.servers import KINDS, DatabaseServer, mariadb

pytestmark = pytest.mark.server
WARN, FAIL = Verdict.WARN, Verdict.FAIL
ALL_OF_STATE = "ALL ON `storage\\_consumer`.*"
TABLE = "CREATE TABLE d.a (id INT PRIMARY KEY, name VARCHAR(20))"


@contextmanager
def globally(there: Scene, **values: object) -> Iterator[None]:
    """Settings of the server, put back afterwards."""
    before = {name: there.server.query(f"SELECT @@GLOBAL.{name}")[0][0] for name in values}

    def put(name: str, value: object) -> None:
        text = f"'{value}'" if isinstance(value, str) else str(value)
        there.sql(f"SET GLOBAL {name} = {text}")

    for name, value in values.items():
        put(name, value)
    try:
        yield
    finally:
        # In reverse order: MySQL's read_only and super_read_only hold each other.
        for name, value in reversed(before.items()):
            put(name, value)


def silent(there: Scene) -> Iterator[None]:
    """A server that takes connections and never says a word."""
    with silent_port() as port:
        there.options |= {"downstream_uri": f"mysql://root@127.0.0.1:{port}/", "connect_timeout": "1s"}
        yield


def at(there: Scene, uri: str) -> None:
    """Another target."""
    there.options["downstream_uri"] = uri


def plain_with(there: Scene, *rights: str, **values: object) -> AbstractContextManager[None] | None:
    """A user with these rights, on a server with these settings."""
    there.as_plain(*rights)
    return globally(there, **values) if values else None


def trigger(there: Scene) -> None:
    """A trigger on a replicated table."""
    there.sql("CREATE DATABASE d", TABLE, "CREATE TRIGGER d.t BEFORE INSERT ON d.a FOR EACH ROW SET NEW.name = 'x'")


def event(there: Scene) -> AbstractContextManager[None]:
    """An event that runs."""
    there.sql("CREATE DATABASE d", "CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO DELETE FROM d.a")
    return globally(there, event_scheduler="ON")


def reference(there: Scene) -> None:
    """A foreign key from a table that is not replicated."""
    there.sql("CREATE DATABASE d", "CREATE DATABASE e", TABLE)
    there.sql("CREATE TABLE e.c (id INT, CONSTRAINT f FOREIGN KEY (id) REFERENCES d.a (id) ON DELETE CASCADE)")


ON_D = f"{ROW_RIGHTS} ON d.*"


@contextmanager
def revoked(there: Scene) -> Iterator[None]:
    """INSERT is granted everywhere, and revoked on one database."""
    with globally(there, partial_revokes=1):
        there.as_plain("ALL ON *.*")
        there.sql("CREATE DATABASE d", f"REVOKE INSERT ON d.* FROM {PLAIN}@'%'")
        try:
            yield
        finally:
            there.sql(f"DROP USER {PLAIN}@'%'")


FAULTS = (
    fault("nobody listens", "target-reachable", FAIL, "cannot connect", lambda there: at(there, "mysql://root@127.0.0.1:1/")),
    fault("wrong password", "target-reachable", FAIL, "check user, password", lambda there: at(there, f"mysql://root:no@127.0.0.1:{there.server.port}/")),
    fault("unknown host", "target-reachable", FAIL, ("cannot be resolved", "getent hosts"), lambda there: at(there, "mysql://root@no-such-host.invalid:3306/")),
    fault("silent server", "target-reachable", FAIL, "did not answer within 1 s", contextmanager(silent)),
    fault("TLS is asked for and not there", "target-reachable", FAIL, ("does not offer it", "--ssl-mode disabled"), lambda there: at(there, f"{there.server.uri}?ssl-mode=required")),
    fault("no rights on the database", "target-rights", FAIL, ("SELECT", "on d", "GRANT"), lambda there: plain_with(there, ALL_OF_STATE)),
    fault("one right is missing", "target-rights", FAIL, "missing: INDEX on d", lambda there: plain_with(there, ALL_OF_STATE, f"{ROW_RIGHTS.replace(' INDEX,', '')} ON d.*")),
    fault("no rights on the state", "target-rights", FAIL, ("GRANT ALL", r"storage\_consumer"), lambda there: plain_with(there, ON_D)),
    fault("no rights on MySQL", "target-rights", FAIL, "GRANT", lambda there: plain_with(there, ALL_OF_STATE), kind="mysql"),
    fault("a right that was revoked in part", "target-rights", FAIL, "INSERT on d", revoked, kind="mysql"),
    fault("read-only, for us too", "target-read-only", FAIL, ("SET GLOBAL read_only = OFF", "primary"), lambda there: plain_with(there, ALL_OF_STATE, ON_D, read_only=1)),
    fault("read-only for others", "target-read-only", WARN, "may pass", lambda there: globally(there, read_only=1)),
    fault("super_read_only", "target-read-only", FAIL, "super_read_only = OFF", lambda there: globally(there, read_only=1, super_read_only=1), kind="mysql"),
    fault("TiDB is read-only", "target-read-only", FAIL, "tidb_super_read_only = OFF", lambda there: globally(there, tidb_super_read_only=1), kind="tidb"),
    fault("keys are required", "target-session", FAIL, ("sql_require_primary_key = OFF", "SESSION_VARIABLES_ADMIN"), lambda there: plain_with(there, ALL_OF_STATE, ON_D, sql_require_primary_key=1), kind="mysql"),
    fault("invisible keys", "target-session", FAIL, "column of their own", lambda there: plain_with(there, ALL_OF_STATE, ON_D, sql_generate_invisible_primary_key=1), kind="mysql"),
    fault("no texts of warnings", "target-session", FAIL, "max_error_count = 64", lambda there: plain_with(there, ALL_OF_STATE, ON_D, max_error_count=0), kind="mysql"),
    fault("small packets", "target-packet", WARN, "SET GLOBAL max_allowed_packet", lambda there: globally(there, max_allowed_packet=1 << 20)),
    fault("small packets of TiDB", "target-packet", WARN, "4 MiB", lambda there: globally(there, max_allowed_packet=1 << 22), kind="tidb"),
    fault("no local_infile", "target-local-infile", WARN, "SET GLOBAL local_infile = ON", lambda there: globally(there, local_infile=0), kind="mysql"),
    fault("unknown time zone", "target-time-zone", WARN, ("Asia/Kolkata", "mysql_tzinfo_to_sql"), lambda there: there.options.update(tz="Asia/Kolkata")),
    fault("trigger", "target-triggers", WARN, "DROP TRIGGER `d`.`t`", trigger),
    fault("event", "target-events", WARN, "ALTER EVENT `d`.`e` DISABLE", event),
    fault("foreign key from outside", "target-foreign-keys", WARN, "DROP FOREIGN KEY `f`", reference),
    fault("foreign key from outside on MySQL", "target-foreign-keys", WARN, "DROP FOREIGN KEY `f`", reference, kind="mysql"),
    fault("short keys", "target-innodb", WARN, "innodb_default_row_format = DYNAMIC", lambda there: globally(there, innodb_default_row_format="compact")),
    fault("keys are forced", "target-innodb", WARN, "innodb_force_primary_key = OFF", lambda there: globally(there, innodb_force_primary_key=1)),
    fault("few connections", "target-connections", WARN, "SET GLOBAL max_connections", lambda there: globally(there, max_connections=12)),
    fault("few connections of a user", "target-connections", WARN, "SET GLOBAL max_user_connections = 24", lambda there: globally(there, max_user_connections=10), kind="mysql"),
)  # fmt: skip


_QUICK = "mariadb"


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(each, marks=() if each.kind == _QUICK else pytest.mark.slow)
        for each in FAULTS
        if each.kind in KINDS
    ],
    ids=str,
)
def test_each_fault_is_named_and_mended(planted: Fault, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The check of the fault says it with its remedy, no other check does, and what a statement mends is found no more."""
    planted_and_mended(planted, scene(request.getfixturevalue(planted.kind), tmp_path))


def test_a_healthy_target(server: DatabaseServer, tmp_path: Path) -> None:
    """Nothing warns, before a first run and beside a writer, for root and for a user with the documented rights alone."""
    there = scene(server, tmp_path)
    assert there.alarms() == {}
    state = there.state()
    assert there.alarms() == {}
    there.as_plain(ALL_OF_STATE, ON_D)
    assert there.alarms() == {}
    state.lease.release()
    state.close()
    assert there.alarms() == {}


def test_it_only_reads(tmp_path: Path, mysql: DatabaseServer) -> None:
    """The server's own log of an examination holds nothing but reads and settings of the session."""
    there = scene(mysql, tmp_path)
    there.state().close()
    with logged(mysql) as statements:
        assert len(there.examine()) > 25
    assert len(statements) > 10
    assert [text for text in statements if not READS.match(text) or WRITES.search(text)] == []


def test_a_role_counts(mariadb: DatabaseServer, mysql: DatabaseServer, tmp_path: Path) -> None:
    """Rights that come by an active role are rights."""
    for each in (mariadb, mysql):
        there = scene(each, tmp_path / each.kind)
        there.as_plain()
        there.sql("CREATE ROLE writers", f"GRANT {ALL_OF_STATE} TO writers", f"GRANT {ON_D} TO writers")
        there.sql(f"GRANT writers TO {PLAIN}@'%'")
        assert {*there.alarms()} == {"target-rights"}
        there.sql(
            f"SET DEFAULT ROLE writers FOR {PLAIN}@'%'"
            if each.kind == "mariadb"
            else f"SET DEFAULT ROLE writers TO {PLAIN}@'%'"
        )
        assert there.alarms() == {}
        there.sql("DROP ROLE writers")


@pytest.mark.root
def test_plain_text_to_another_machine(tmp_path: Path) -> None:
    """Rows that travel in plain text to an address that is not of this machine's loopback are warned of."""

    def look() -> dict[str, str]:
        with mariadb(options=["--bind-address=0.0.0.0"]) as server:
            there = scene(server, tmp_path)
            at(there, f"mysql://root@{ADDRESS}:{server.port}/")
            server.query("CREATE USER root@'%'")
            server.query("GRANT ALL ON *.* TO root@'%'")
            return {name: f"{each.text} {each.remedy}" for name, each in there.alarms().items()}

    found = elsewhere(look)
    assert [*found] == ["network-target"]
    assert re.search("plain text.*--ssl-mode verify-identity", found["network-target"])


def test_run_warns_at_its_start(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """What two queries show is logged with its statement; a server that is healthy, or refuses the queries, adds no warning."""
    there = scene(mariadb, tmp_path)
    database = TargetDatabase(doctor_input(Session(there.options, there.environ)).config.downstream, "")
    heard: list[tuple[str, Mapping[str, object]]] = []
    remove = listen(lambda event, _level, fields: heard.append((event, fields)))
    try:
        warn_at_start(database.rows, wants_local_infile=True)
        assert heard == []
        with globally(there, max_allowed_packet=1 << 20):
            database.close()
            warn_at_start(database.rows, wants_local_infile=True)
        warn_at_start(lambda *_: [], wants_local_infile=True)
    finally:
        remove()
        database.close()
    assert [event for event, _ in heard] == ["doctor_finding", "doctor_failed"]
    assert heard[0][1]["check"] == "target-packet"
    assert heard[0][1]["statement"] == "SET GLOBAL max_allowed_packet = 67108864"


@pytest.mark.spark
def test_a_run_goes_on_after_its_warnings(mysql: DatabaseServer, tmp_path: Path, spark: object) -> None:
    """A consumer says once what is worth a warning, and applies the bucket as if nothing were."""
    there = scene(mysql, tmp_path)
    heard: list[Mapping[str, object]] = []
    remove = listen(lambda event, _level, fields: heard.append(fields) if event == "doctor_finding" else None)
    try:
        with globally(there, local_infile=0), Consumer(**there.options) as consumer:  # type: ignore[arg-type] # a mapping
            assert consumer.run_once().halted == ()
            consumer.run_once()
    finally:
        remove()
    assert [fields["check"] for fields in heard] == ["target-local-infile"]
    assert mysql.query("SELECT COUNT(*) FROM d.a") == ((2,),)
    assert there.alarms() == {}
