"""What the rules make of facts: each border on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storage_consumer.checkpoint.operator_feed import FeedRow
from storage_consumer.config.settings import Downstream, Upstream
from storage_consumer.doctor import bucket_rules, server_rules, spark_rules, state_rules, target_rules
from storage_consumer.doctor.bucket_look import BucketFacts, Listed, MetadataFacts, Numbers
from storage_consumer.doctor.findings import Outcome, Verdict
from storage_consumer.doctor.target_look import TableFacts
from storage_consumer.downstream.server_look import Found, Space
from storage_consumer.downstream.state_tables import MIGRATED, STATE_VERSION
from storage_consumer.inspection.result import Bucket
from storage_consumer.spark.surroundings import Java, LocalDir
from tests.unit.doctor.facts import GIB, NOW, line, state, surroundings, target, variables

OK, WARN, FAIL, NOT = Verdict.OK, Verdict.WARN, Verdict.FAIL, Verdict.NOT_LOOKED_AT
UPSTREAM = Upstream(scheme="s3", root="bucket/prefix", protocol="csv")
DAY = 86_400


def metadata(content: bytes | None, **more: Any) -> MetadataFacts:
    """The file, now."""
    return MetadataFacts(content=content, now=NOW, **more)


def at(seconds: float) -> bytes:
    """A ``metadata`` of so many seconds after now."""
    return b'{"checkpoint-ts":%d}' % (int((NOW + seconds) * 1000) << 18)


def bucket(days: int = 0, behind: float = 0.0, **more: Any) -> BucketFacts:
    """An empty bucket, with an expiry in days, and a state that is behind by so many seconds."""
    empty = Bucket(
        place="s3://bucket/prefix", layouts=("new",), architecture="new", index_widths=(20,), dispatchers=False, settings=(),
        tables=(), objects=1, size=1, data_files=0, schema_files=1, sampled=0, checkpoint=1, commit_ts=(), versions=(), warnings=(), upstream=UPSTREAM,
    )  # fmt: skip
    plain = BucketFacts(
        bucket=empty,
        why="",
        listed=Listed(),
        finished={},
        schema_file="",
        data_file="",
        upstream=replace(UPSTREAM, file_expiration_days=days),
        now=NOW,
        checkpoint=int((NOW - behind) * 1000) << 18 if behind else 0,
    )
    return replace(plain, **more)


def listed(lowest: int, highest: int, count: int, finished: int = 0) -> BucketFacts:
    """A bucket with one sequence of files above those that are finished."""
    found = Listed(sequences={"d/a/1||20": Numbers(lowest, highest, count)})
    return bucket(listed=found, finished={"d/a/1||20": finished} if finished else {})


def feed(holder: str = "", *, is_held: bool = False, upstream: str = "s3://bucket/prefix") -> FeedRow:
    """What is stored of the feed."""
    return FeedRow(upstream=upstream, checkpoint=1, storage_checkpoint=1, holder=holder, is_held=is_held, epoch=1)


HOLDER = "db1|place|7|x"
CASES: list[tuple[Callable[[Any], Outcome], Any, Verdict, str]] = [
    # the bucket
    (bucket_rules.metadata, metadata(at(0)), OK, "checkpoint"),
    (bucket_rules.metadata, metadata(None), FAIL, "sink URI"),
    (bucket_rules.metadata, metadata(None, likely=("s3://bucket/feed",)), FAIL, "--upstream-uri s3://bucket/feed"),
    (bucket_rules.metadata, metadata(b"{"), FAIL, "no checkpoint-ts"),
    (bucket_rules.clock, metadata(at(0)), OK, ""),
    (bucket_rules.clock, metadata(at(9 * DAY)), FAIL, "ahead of the clock"),
    (bucket_rules.clock, metadata(b"{"), NOT, "no checkpoint"),
    (bucket_rules.age, metadata(at(-300)), OK, "5m00s"),
    (bucket_rules.age, metadata(at(-301)), WARN, "changefeed"),
    (bucket_rules.age, metadata(None), NOT, "no checkpoint"),
    (bucket_rules.layout, bucket(), OK, "new"),
    (bucket_rules.layout, bucket(bucket=None, why="refused"), FAIL, "refused"),
    (bucket_rules.schema_file, bucket(), NOT, "yet"),
    (bucket_rules.from_before, bucket(from_before=("d/t/meta/schema_1_1.json",)), WARN, "the source had them before the changefeed: d/t/meta"),
    (bucket_rules.from_before, bucket(from_before=("d/t/meta/schema_1_1.json",), checkpoint=1), OK, "the feed has begun"),
    (bucket_rules.from_before, bucket(), OK, "begins with a statement"),
    (bucket_rules.schema_file, bucket(listed=Listed(first_schema_files={"d/meta": "d/meta/schema_1_1.json"})), OK, "can be read"),
    (bucket_rules.schema_file, bucket(listed=Listed(first_schema_files={"d/meta": "d/meta/schema_1_1.json"}), schema_file="403"), FAIL, "GetObject"),
    (bucket_rules.data_file, bucket(), NOT, "yet"),
    (bucket_rules.settings, bucket(bucket=None), NOT, "inspected"),
    (bucket_rules.expiry, bucket(), OK, "no expiry"),
    (bucket_rules.expiry, bucket(4), OK, "nothing is applied"),
    (bucket_rules.expiry, bucket(4, behind=2 * DAY), OK, "2d00h"),
    (bucket_rules.expiry, bucket(4, behind=2 * DAY + 1), WARN, "file-expiration-days"),
    (bucket_rules.expiry, bucket(4, behind=4 * DAY + 1), FAIL, "file-expiration-days"),
    (bucket_rules.gaps, listed(1, 3, 3), OK, ""),
    (bucket_rules.gaps, listed(2, 3, 2), FAIL, "1 of the numbers 1 to 3"),
    (bucket_rules.gaps, listed(1, 3, 2), FAIL, "d/a/1"),
    (bucket_rules.gaps, listed(8, 9, 2, finished=7), OK, ""),
    (bucket_rules.gaps, listed(9, 9, 1, finished=7), FAIL, "1 of the numbers 8 to 9"),
    (bucket_rules.transport, UPSTREAM, OK, "TLS"),
    (bucket_rules.transport, replace(UPSTREAM, endpoint="http://127.0.0.1:9"), OK, "this machine"),
    (bucket_rules.transport, replace(UPSTREAM, endpoint="http://store:9"), WARN, "plain text from store:9"),
    (bucket_rules.transport, replace(UPSTREAM, endpoint="https://store:9"), OK, "TLS"),
    (bucket_rules.transport, Upstream(scheme="file", root="/dir", protocol="csv"), OK, "folder"),
    # the server's settings
    (server_rules.version, variables(), OK, "9.7"),
    (server_rules.version, variables(version="5.7.44-log"), WARN, "older"),
    (server_rules.version, variables("mariadb", "10.4.1-MariaDB"), WARN, "MariaDB 10.11"),
    (server_rules.version, variables("mariadb", "11.4.2-MariaDB"), OK, ""),
    (server_rules.version, variables("tidb", "8.0.11-TiDB-v6.1.0"), WARN, "6.5"),
    (server_rules.version, variables("tidb", "8.0.11-TiDB-v8.5.1"), OK, ""),
    (server_rules.packet, variables(max_allowed_packet=str(16 << 20)), OK, "16 MiB"),
    (server_rules.packet, variables(max_allowed_packet=str((16 << 20) - 1)), WARN, "SET GLOBAL max_allowed_packet"),
    (server_rules.local_infile, variables(local_infile="OFF"), WARN, "SET GLOBAL local_infile = ON"),
    (server_rules.local_infile, variables("mariadb", local_infile="OFF"), OK, "bulk"),
    (server_rules.row_format, variables(innodb_force_recovery="3"), FAIL, "3"),
    (server_rules.row_format, variables(innodb_default_row_format="COMPACT"), WARN, "DYNAMIC"),
    (server_rules.row_format, variables(innodb_page_size="8192"), WARN, "8192"),
    (server_rules.row_format, variables("tidb"), OK, "own storage"),
    (server_rules.binlog, variables(log_bin="ON", binlog_format="ROW"), OK, "row"),
    (server_rules.session, variables(log_bin="ON", session={"binlog_format": "STATEMENT"}), FAIL, "binlog_format = 'ROW'"),
    (server_rules.session, variables(log_bin="OFF", session={"binlog_format": "STATEMENT"}), OK, ""),
    (server_rules.session, variables(session={"sql_require_primary_key": "ON"}), FAIL, "SESSION_VARIABLES_ADMIN"),
    # the target
    (target_rules.rights, target(missing={"d": ("INDEX",)}, grants={"d": "GRANT x"}), FAIL, "missing: INDEX on d"),
    (target_rules.rights, target(missing={"storage_consumer": ("INDEX",)}, grants={}), OK, ""),
    (target_rules.state_rights, target(missing={"storage_consumer": ("DROP",)}, grants={"storage_consumer": "GRANT ALL"}), FAIL, "GRANT ALL"),
    (target_rules.read_only, target(variables=variables(read_only="ON")), FAIL, "SET GLOBAL read_only = OFF"),
    (target_rules.read_only, target(variables=variables(read_only="ON"), passes_read_only=True), WARN, "primary"),
    (target_rules.read_only, target(variables=variables(super_read_only="ON", read_only="ON"), passes_read_only=True), FAIL, "super"),
    (target_rules.read_only, target(variables=variables(innodb_read_only="ON")), FAIL, "innodb_read_only"),
    (target_rules.collation, target(has_collation=False), FAIL, "utf8mb4"),
    (target_rules.names, target(("d.a", "d.A")), FAIL, "d.A, d.a"),
    (target_rules.names, target(("d.a", "e.A")), OK, ""),
    (target_rules.zone, target(downstream=Downstream(time_zone="+05:00")), OK, "+05:00"),
    (target_rules.zone, target(downstream=Downstream(time_zone="Asia/Tokyo")), WARN, "mysql_tzinfo_to_sql"),
    (target_rules.zone, target(downstream=Downstream(time_zone="Asia/Tokyo"), knows_zone=True), OK, "known"),
    (target_rules.triggers, target(triggers=(Found(name="`d`.`t`", table="`d`.`a`"),)), WARN, "DROP TRIGGER `d`.`t`"),
    (target_rules.triggers, target(triggers=(Found(name="`d`.`t`", table="`d`.`other`"),)), OK, ""),
    (target_rules.events, target(events=(Found(name="`d`.`e`", table=""),)), OK, ""),
    (target_rules.events, target(events=(Found(name="`d`.`e`", table=""),), variables=variables(event_scheduler="ON")), WARN, "DISABLE"),
    (target_rules.references, target(references=(Found(name="`e`.`f`", table="`e`.`c`"),)), WARN, "ALTER TABLE `e`.`c` DROP FOREIGN KEY `f`"),
    (target_rules.connections, target(connections=127), OK, "127 in use of 151"),
    (target_rules.connections, target(connections=128), WARN, "SET GLOBAL max_connections"),
    (target_rules.connections, target(variables=variables(max_user_connections="23")), WARN, "max_user_connections = 24"),
    (target_rules.connections, target(connections=999, variables=variables(max_connections="0")), OK, ""),
    (target_rules.disk, target(), OK, "not visible"),
    (target_rules.disk, target(space=Space(used=0, free=GIB)), OK, "1.0 GiB are free"),
    (target_rules.disk, target(space=Space(used=0, free=GIB - 1)), WARN, "Make room"),
    (target_rules.disk, target(size=2 * GIB, space=Space(used=GIB, free=2 * GIB)), WARN, "3.0 GiB more"),
    (target_rules.disk, target(size=2 * GIB, space=Space(used=GIB, free=3 * GIB)), OK, ""),
    (target_rules.keys, TableFacts(downstream=Downstream(), there={}), OK, "0 of the tables"),
    (target_rules.tls, target(), OK, "this machine"),
    (target_rules.tls, target(line=line(is_local=False)), WARN, "plain text"),
    (target_rules.tls, target(line=line(is_local=False, encrypts=True)), WARN, "nothing verifies"),
    (target_rules.tls, target(line=line(is_local=False, encrypts=True, verifies=True)), OK, "verified"),
    (target_rules.distance, target(line=line(round_trip=0.05)), OK, "50.00 ms"),
    (target_rules.distance, target(line=line(round_trip=0.06)), WARN, "nearer"),
    (target_rules.clocks, target(line=line(ahead=10.0)), OK, "agree"),
    (target_rules.clocks, target(line=line(ahead=11.0)), WARN, "11 s ahead of"),
    (target_rules.clocks, target(line=line(ahead=-3600.0)), WARN, "3600 s behind"),
    # Spark
    (spark_rules.pyspark, surroundings(pyspark=""), FAIL, "pip install"),
    (spark_rules.pyspark, surroundings(pyspark="3.5.1"), FAIL, "3.5.1"),
    (spark_rules.pyspark, surroundings(pyspark="4.4.0"), FAIL, "4.4"),
    (spark_rules.pyspark, surroundings(pyspark="unknown"), OK, ""),
    (spark_rules.java, surroundings(), OK, "Java 17"),
    (spark_rules.java, surroundings(java=Java(home="", program="", version=0)), FAIL, "apt-get install"),
    (spark_rules.java, surroundings(java=Java(home="/opt/x", program="", version=0)), FAIL, "JAVA_HOME is /opt/x"),
    (spark_rules.java, surroundings(java=Java(home="", program="/j", version=11)), FAIL, "is Java 11"),
    (spark_rules.memory, surroundings(), OK, "8.0 GiB"),
    (spark_rules.memory, surroundings(available=GIB - 1), WARN, "more memory"),
    (spark_rules.memory, surroundings(memory=2 * GIB - 1), WARN, "more memory"),
    (spark_rules.memory, surroundings(memory=0, available=0), OK, "does not tell"),
    (spark_rules.cores, surroundings(cores=1), WARN, "1 processor"),
    (spark_rules.local_dirs, surroundings(local_dirs=(LocalDir(path="/x", is_writable=False, free=9 * GIB),)), FAIL, "SPARK_LOCAL_DIRS"),
    (spark_rules.local_dirs, surroundings(local_dirs=(LocalDir(path="/x", is_writable=True, free=1 << 20),)), FAIL, "1 MiB free"),
    (spark_rules.local_dirs, surroundings(local_dirs=(LocalDir(path="/x", is_writable=True, free=GIB),)), WARN, "1024 MiB free"),
    # the state
    (state_rules.version, state(), OK, "first run creates it"),
    (state_rules.version, state(version=STATE_VERSION), OK, ""),
    (state_rules.version, state(version=max(MIGRATED)), WARN, "migrates it"),
    (state_rules.version, state(version=STATE_VERSION + 1), FAIL, "--state-schema"),
    (state_rules.bucket, state(), OK, "no state"),
    (state_rules.bucket, state(version=STATE_VERSION + 1), NOT, "version"),
    (lambda facts: state_rules.bucket(facts, "s3://bucket/prefix"), state(version=STATE_VERSION, feed=feed()), OK, ""),
    (lambda facts: state_rules.bucket(facts, "s3://other"), state(version=STATE_VERSION, feed=feed()), FAIL, "rebind --upstream-uri s3://other"),
    (state_rules.lease, state(version=STATE_VERSION, feed=feed()), OK, "nobody"),
    (state_rules.lease, state(version=STATE_VERSION, feed=feed(HOLDER, is_held=True)), OK, "pid 7 writes now"),
    (state_rules.lease, state(version=STATE_VERSION, feed=feed(HOLDER, is_held=True), writer_is_gone=True), OK, "is gone"),
    (state_rules.lease, state(version=STATE_VERSION, feed=feed(HOLDER)), WARN, "without releasing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "facts", "verdict", "says"), CASES, ids=lambda value: getattr(value, "__name__", None)
)
def test_verdicts(rule: Callable[[Any], Outcome], facts: Any, verdict: Verdict, says: str) -> None:
    """Each rule gives this verdict, and its line, remedy or statements say this; whoever is alarmed is told what to do."""
    outcome = rule(facts)
    assert outcome.verdict is verdict, outcome
    assert says in "\n".join((outcome.text, outcome.remedy, *outcome.statements))
    assert "\n" not in outcome.text
    if verdict is WARN:
        assert outcome.remedy
    if verdict is OK:
        assert (outcome.remedy, outcome.statements) == ("", ())
