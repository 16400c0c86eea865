"""What the checks make of facts, each border on both sides; facts that cannot be read; and what grants give."""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.bucket.inspector import InspectedSetting
from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.driver.open_copies import OpenCopy
from storage_consumer.errors import TargetUnavailable
from storage_consumer.operating import checks
from storage_consumer.operating.checks import (
    CHECKS,
    GROUPS,
    Finding,
    Verdict,
    fail,
    found_by,
    group_of,
    name_of,
    not_looked_at,
    ok,
    warn,
    worst,
)
from storage_consumer.operating.doctor_facts import Facts, StateFacts, Unread, read_within
from storage_consumer.surroundings import PYSPARK, Java, LocalDir
from storage_consumer.target.database import FoundObject
from storage_consumer.target.rights import Granted
from storage_consumer.target.state_tables import MIGRATED, STATE_VERSION
from tests.unit.operating.facts import (
    GIB,
    UPSTREAM,
    at,
    bucket,
    facts,
    line,
    of_server,
    snapshot,
    surroundings,
    with_settings,
)

ROOT = Path(__file__).resolve().parents[3]
OK, WARN, FAIL, NOT = Verdict.OK, Verdict.WARN, Verdict.FAIL, Verdict.NOT_LOOKED_AT
DAY = 86_400


def holding(**changes: Any) -> Facts:
    """Another bucket."""
    return facts(bucket=bucket(**changes))


def expiring(days: int, behind: float = 0.0, **changes: Any) -> Facts:
    """Files that expire, and a state that is behind by so many seconds."""
    state = StateFacts(STATE_VERSION, snapshot(checkpoint=at(-behind), **changes)) if behind else StateFacts(None)
    return facts(upstream=replace(UPSTREAM, file_expiration_days=days), state=state)


def given(keyword: str, state: Any, value: object = None) -> Facts:
    """A bucket with one setting."""
    return holding(settings=(InspectedSetting(keyword=keyword, state=state, value=value, origin="d/a shows another"),))


def of_state(version: int) -> Facts:
    """A state of this version."""
    return facts(state=StateFacts(version, snapshot() if version == STATE_VERSION else None))


def folder(path: str, free: int, *, is_writable: bool = True) -> Facts:
    """A machine with one folder for Spark."""
    return facts(surroundings=surroundings(local_dirs=(LocalDir(path=path, is_writable=is_writable, free=free),)))


def java(home: str = "", program: str = "", version: int = 0) -> Facts:
    """A machine with another Java."""
    return facts(surroundings=surroundings(java=Java(home=home, program=program, version=version)))


def at_endpoint(endpoint: str) -> Facts:
    """A store there."""
    return facts(upstream=replace(UPSTREAM, endpoint=endpoint))


CASES: list[tuple[Callable[[Any], Finding], Facts, Verdict, str]] = [
    # the bucket
    (checks.bucket_metadata, facts(), OK, "checkpoint"),
    (checks.bucket_metadata, holding(checkpoint=0), FAIL, "sink URI"),
    (checks.bucket_metadata, holding(checkpoint=0, likely=("s3://bucket/feed",)), FAIL, "--upstream-uri s3://bucket/feed"),
    (checks.bucket_metadata, holding(checkpoint=0, warnings=("x", "metadata holds no checkpoint-ts")), FAIL, "holds no checkpoint-ts"),
    (checks.bucket_checkpoint_age, holding(checkpoint=at(-300)), OK, "5m00s"),
    (checks.bucket_checkpoint_age, holding(checkpoint=at(-301)), WARN, "changefeed"),
    (checks.bucket_checkpoint_age, holding(checkpoint=0), NOT, "no checkpoint"),
    (checks.bucket_layout, facts(), OK, "new"),
    (checks.bucket_layout, holding(layouts=()), WARN, "first table"),
    (checks.bucket_layout, holding(warnings=("odd",)), WARN, "odd"),
    (checks.bucket_layout, holding(checkpoint=0, warnings=("no metadata",)), OK, "new"),
    (checks.bucket_settings, facts(), OK, "fit"),
    (checks.bucket_settings, given("delimiter", "contradicts", "|"), FAIL, "--delimiter was given as '|', but d/a shows"),
    (checks.bucket_settings, given("tz", "unknown"), FAIL, "Give --tz '<ZONE>'"),
    (checks.bucket_settings, given("delimiter", "unknown"), FAIL, "TOML file, or --delimiter"),
    (checks.bucket_settings, given("null", "assumed", "\\N"), WARN, "assumed"),
    (checks.bucket_expiry, facts(), OK, "no expiry"),
    (checks.bucket_expiry, expiring(4), OK, "nothing is applied"),
    (checks.bucket_expiry, expiring(4, 9 * DAY, upstream="s3://other"), OK, "nothing is applied"),
    (checks.bucket_expiry, expiring(4, 2 * DAY), OK, "2d00h"),
    (checks.bucket_expiry, expiring(4, 2 * DAY + 1), WARN, "file-expiration-days"),
    (checks.bucket_expiry, expiring(4, 4 * DAY + 1), FAIL, "file-expiration-days"),
    (checks.bucket_export, holding(checkpoint=at(-60)), OK, "0 tables and views, as of"),
    (checks.bucket_export, holding(checkpoint=at(-59)), FAIL, "nothing proves that the changefeed began at or before the copy"),
    (checks.bucket_export, facts(export=OpenCopy(identity="", snapshot=at(3600), origin=UPSTREAM)), FAIL, "in the future"),
    # the target
    (checks.target_version, facts(), OK, "9.7"),
    (checks.target_version, with_settings(version="5.7.44-log"), WARN, "older"),
    (checks.target_version, with_settings("mariadb", "10.4.1-MariaDB"), WARN, "MariaDB 10.11"),
    (checks.target_version, with_settings("mariadb", "11.4.2-MariaDB"), OK, ""),
    (checks.target_version, with_settings("tidb", "8.0.11-TiDB-v6.1.0"), WARN, "6.5"),
    (checks.target_version, with_settings("tidb", "8.0.11-TiDB-v8.5.1"), OK, ""),
    (checks.target_read_only, with_settings(read_only="ON"), FAIL, "SET GLOBAL read_only = OFF"),
    (checks.target_read_only, of_server(variables=with_settings(read_only="ON").variables, passes_read_only=True), WARN, "primary"),
    (checks.target_read_only, of_server(variables=with_settings(super_read_only="ON").variables, passes_read_only=True), FAIL, "super"),
    (checks.target_read_only, with_settings(innodb_read_only="ON"), FAIL, "innodb_read_only"),
    (checks.target_rights, facts(), OK, "all rights"),
    (checks.target_rights, facts(()), OK, "no table is known"),
    (checks.target_rights, of_server(missing={"d": ("INDEX",)}, grants={"d": "GRANT x"}), FAIL, "missing: INDEX on d; tables would halt"),
    (checks.target_rights, of_server(missing={"storage_consumer": ("DROP",)}, grants={"storage_consumer": "GRANT ALL"}), FAIL, "state cannot be kept"),
    (checks.target_session, with_settings(log_bin="ON", session={"binlog_format": "STATEMENT"}), FAIL, "binlog_format = 'ROW'"),
    (checks.target_session, with_settings(log_bin="OFF", session={"binlog_format": "STATEMENT"}), OK, ""),
    (checks.target_session, with_settings(session={"sql_require_primary_key": "ON"}), FAIL, "SESSION_VARIABLES_ADMIN"),
    (checks.target_packet, with_settings(max_allowed_packet=str(16 << 20)), OK, "16 MiB"),
    (checks.target_packet, with_settings(max_allowed_packet=str((16 << 20) - 1)), WARN, "SET GLOBAL max_allowed_packet"),
    (checks.target_local_infile, with_settings(local_infile="OFF"), WARN, "SET GLOBAL local_infile = ON"),
    (checks.target_local_infile, with_settings("mariadb", local_infile="OFF"), OK, "bulk"),
    (checks.target_local_infile, facts(local_infile=False), OK, "switched off"),
    (checks.target_time_zone, facts(downstream=Downstream(time_zone="+05:00")), OK, "+05:00"),
    (checks.target_time_zone, facts(downstream=Downstream(time_zone="Asia/Tokyo")), WARN, "mysql_tzinfo_to_sql"),
    (checks.target_triggers, of_server(triggers=(FoundObject(name="`d`.`t`", table="`d`.`a`"),)), WARN, "DROP TRIGGER `d`.`t`"),
    (checks.target_triggers, of_server(triggers=(FoundObject(name="`d`.`t`", table="`d`.`other`"),)), OK, ""),
    (checks.target_events, of_server(events=(FoundObject(name="`d`.`e`", table=""),)), OK, ""),
    (checks.target_events, of_server(events=(FoundObject(name="`d`.`e`", table=""),), variables=with_settings(event_scheduler="ON").variables), WARN, "DISABLE"),
    (checks.target_foreign_keys, of_server(references=(FoundObject(name="`e`.`f`", table="`e`.`c`"),)), WARN, "ALTER TABLE `e`.`c` DROP FOREIGN KEY `f`"),
    (checks.target_innodb, with_settings(innodb_force_recovery="3"), FAIL, "3"),
    (checks.target_innodb, with_settings(innodb_default_row_format="COMPACT"), WARN, "DYNAMIC"),
    (checks.target_innodb, with_settings(innodb_page_size="8192"), WARN, "8192"),
    (checks.target_innodb, with_settings("tidb"), OK, "own storage"),
    (checks.target_connections, of_server(connections=127), OK, "127 in use of 151"),
    (checks.target_connections, of_server(connections=128), WARN, "SET GLOBAL max_connections"),
    (checks.target_connections, with_settings(max_user_connections="23"), WARN, "max_user_connections = 24"),
    (checks.target_connections, of_server(connections=999, variables=with_settings(max_connections="0").variables), OK, ""),
    # Spark
    (checks.spark_pyspark, facts(surroundings=surroundings(pyspark="")), FAIL, "pip install"),
    (checks.spark_pyspark, facts(surroundings=surroundings(pyspark="3.5.1")), FAIL, "3.5.1"),
    (checks.spark_pyspark, facts(surroundings=surroundings(pyspark="4.4.0")), FAIL, "4.4"),
    (checks.spark_pyspark, facts(surroundings=surroundings(pyspark="unknown")), OK, ""),
    (checks.spark_java, facts(), OK, "Java 17"),
    (checks.spark_java, java(), FAIL, "apt-get install"),
    (checks.spark_java, java(home="/opt/x"), FAIL, "JAVA_HOME is /opt/x"),
    (checks.spark_java, java(program="/j", version=11), FAIL, "is Java 11"),
    (checks.spark_local_dirs, folder("/x", 9 * GIB, is_writable=False), FAIL, "SPARK_LOCAL_DIRS"),
    (checks.spark_local_dirs, folder("/x", 1 << 20), FAIL, "1 MiB free"),
    (checks.spark_local_dirs, folder("/x", GIB), WARN, "1024 MiB free"),
    # the network
    (checks.network_bucket, facts(), OK, "TLS"),
    (checks.network_bucket, at_endpoint("http://127.0.0.1:9"), OK, "this machine"),
    (checks.network_bucket, at_endpoint("http://store:9"), WARN, "plain text from store:9"),
    (checks.network_bucket, at_endpoint("https://store:9"), OK, "TLS"),
    (checks.network_bucket, facts(upstream=Upstream(scheme="file", root="/dir", protocol="csv")), OK, "folder"),
    (checks.network_target, facts(), OK, "this machine"),
    (checks.network_target, of_server(line=line(is_local=False)), WARN, "plain text"),
    (checks.network_target, of_server(line=line(is_local=False, encrypts=True)), WARN, "nothing verifies"),
    (checks.network_target, of_server(line=line(is_local=False, encrypts=True, verifies=True)), OK, "verified"),
    (checks.network_clock, of_server(line=line(ahead=10.0)), OK, "agree"),
    (checks.network_clock, of_server(line=line(ahead=11.0)), WARN, "11 s ahead of"),
    (checks.network_clock, of_server(line=line(ahead=-3600.0)), WARN, "3600 s behind"),
    # the state
    (checks.state_schema, facts(), OK, "first run creates it"),
    (checks.state_schema, of_state(STATE_VERSION), OK, ""),
    (checks.state_schema, of_state(max(MIGRATED)), WARN, "migrates it"),
    (checks.state_schema, of_state(STATE_VERSION + 1), FAIL, "--state-schema"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("judge", "known", "verdict", "says"), CASES, ids=lambda value: getattr(value, "__name__", None)
)
def test_verdicts(judge: Callable[[Any], Finding], known: Facts, verdict: Verdict, says: str) -> None:
    """Each check gives this verdict, and its line, remedy or statements say this; whoever is alarmed is told what to do."""
    finding = judge(known)
    assert finding.verdict is verdict, finding
    assert says in "\n".join((finding.text, finding.remedy, *finding.statements))
    assert "\n" not in finding.text
    if verdict is WARN:
        assert finding.remedy
    if verdict is OK:
        assert (finding.remedy, finding.statements) == ("", ())


def test_tables_that_nobody_knows() -> None:
    """What acts on replicated tables is not looked at where none is known."""
    for judge in (checks.target_triggers, checks.target_events, checks.target_foreign_keys):
        found = found_by(name_of(judge), facts(()))
        assert (found.verdict, "no table" in found.text) == (NOT, True)


def test_a_question_without_answer() -> None:
    """What takes too long is left behind, and its reason is the time."""
    end, begun = threading.Event(), time.monotonic()
    found = read_within(0.05, end.wait, "a-b")
    assert isinstance(found, Unread)
    assert found.why.startswith("no answer within 0.05 s: check the address")
    assert (found.check, time.monotonic() - begun < 5) == ("a-b", True)
    end.set()


def test_a_question_that_fails() -> None:
    """An error of ours gives its own words, any other one its name; neither gets out."""

    def ours() -> None:
        raise TargetUnavailable("nobody is there")

    def other() -> None:
        raise RuntimeError("bad\nthing")

    assert str(read_within(9, ours)) == "nobody is there"
    assert str(read_within(9, other)) == "unexpected RuntimeError: bad thing"
    assert read_within(9, lambda: None) is None


def test_what_follows_from_facts_that_cannot_be_read() -> None:
    """One check fails with the reason, and the others were not looked at."""

    class Silent:
        """A target that does not answer."""

        @property
        def variables(self) -> None:
            raise Unread("gone", "target-packet")

    silent: Any = Silent()
    assert found_by("target-packet", silent) == replace(fail("gone"), check="target-packet")
    assert found_by("target-innodb", silent) == replace(not_looked_at("target-packet failed"), check="target-innodb")
    # Where that check is not among those that were asked for, nothing else says why.
    assert found_by("target-innodb", silent, ("bucket",)).text == "gone"


def test_the_worst_counts() -> None:
    """A failure outweighs a warning; what was not looked at is no alarm."""
    fine, odd, bad = ok(""), warn("", ""), fail("")
    assert worst((fine, not_looked_at(""))) is Verdict.OK
    assert worst((fine, odd)) is Verdict.WARN
    assert worst((odd, bad)) is Verdict.FAIL


def test_the_groups_of_the_checks() -> None:
    """Each check is in a group, and those of a group are together."""
    assert list(dict.fromkeys(map(group_of, CHECKS))) == list(GROUPS)
    assert all(check.reads and check.meaning and check.remedy for check in CHECKS.values())


def test_pyspark_as_the_package_needs_it() -> None:
    """The supported versions are those of the package's dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    low, high = (".".join(map(str, each)) for each in PYSPARK)
    assert f"pyspark>={low},<{high}" in project["dependencies"]


@pytest.mark.parametrize(
    ("lines", "schema", "missing"),
    [
        (["GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION"], "d", ()),
        (["GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT, INDEX ON `d`.* TO `u`@`%`"], "d", ()),
        (["GRANT SELECT ON `d`.* TO `u`@`%`"], "d", ("INDEX",)),
        (["GRANT SELECT,INDEX ON `d`.* TO 'u'@'%'"], "e", ("SELECT", "INDEX")),
        (["GRANT SELECT, INDEX ON `a\\_b`.* TO `u`@`%`"], "a_b", ()),
        (["GRANT SELECT, INDEX ON `a\\_b`.* TO `u`@`%`"], "axb", ("SELECT", "INDEX")),
        (["GRANT SELECT, INDEX ON `a_%`.* TO `u`@`%`"], "axyz", ()),
        (["GRANT SELECT, INDEX ON `d`.`t` TO `u`@`%`"], "d", ("SELECT", "INDEX")),
        (["GRANT SELECT (`a`), INDEX ON `d`.* TO `u`@`%`"], "d", ("SELECT",)),
        (["GRANT ALL ON *.* TO `u`@`%`", "REVOKE INDEX ON `d`.* FROM `u`@`%`"], "d", ("INDEX",)),
        (["GRANT ALL ON *.* TO `u`@`%`", "REVOKE INDEX ON `d`.* FROM `u`@`%`"], "e", ()),
        (["GRANT `role`@`%` TO `u`@`%`"], "d", ("SELECT", "INDEX")),
        (["GRANT ALL ON `a``b`.* TO `u`@`%`"], "a`b", ()),
    ],
)
def test_what_grants_give(lines: list[str], schema: str, missing: tuple[str, ...]) -> None:
    """Rights on all databases or on one count; those on tables, on columns and through a role that is not active do not."""
    assert Granted(lines).missing(("SELECT", "INDEX"), schema) == missing


def test_names_without_wildcards() -> None:
    """With MySQL's partial_revokes a name in a grant means itself."""
    assert Granted(["GRANT SELECT ON `a_b`.* TO u"], literal_names=True).missing(("SELECT",), "axb") == ("SELECT",)
    assert Granted(["GRANT SELECT ON `a_b`.* TO `u`@`%`"], literal_names=True).missing(("SELECT",), "a_b") == ()
