"""The checks. Each takes the facts and returns a finding.

Its docstring says when it warns or fails. The reference page is made from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

from storage_consumer.clock import some_of, span
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.decode.values import converted_zone
from storage_consumer.operating.doctor_facts import DoctorInput, Facts, Unread
from storage_consumer.plan.copies import gap_proof, refused_future
from storage_consumer.surroundings import JAVA, PYSPARK
from storage_consumer.target.database import (
    READ_ONLY,
    FoundObject,
    ServerFacts,
    Variables,
    variables_of,
)
from storage_consumer.target.existing_names import Query
from storage_consumer.target.state_tables import MIGRATED, STATE_VERSION
from storage_consumer.telemetry import Log, tso_time
from storage_consumer.watch.report import lag_of
from storage_consumer.watch.status import STALLED

_log = Log("doctor")
_SHOWN = 3
"""Names in a line."""
_GIB, _MIB = 1 << 30, 1 << 20
_DAY = 86_400.0
_SOON = 0.5
"""Part of the expiry that the checkpoint may lie back."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OLDEST = {"mariadb": (10, 5), "mysql": (8, 0), "tidb": (6, 5)}
_TESTED = {"mariadb": "MariaDB 10.11 or 11.8", "mysql": "MySQL 9.7", "tidb": "TiDB 8"}
_PACKET = 16 * _MIB
"""Bytes: a row of TiDB may have 6 MiB, and twice that as text of a statement."""
_WANTED_PACKET = 64 * _MIB
_ROW_FORMAT, _PAGE = "DYNAMIC", 16_384
_SESSION = {
    "sql_require_primary_key": ("ON", "OFF", "tables without a key are refused"),
    "sql_generate_invisible_primary_key": (
        "ON",
        "OFF",
        "tables without a key get a column of their own",
    ),
    "binlog_format": ("STATEMENT", "'ROW'", "InnoDB refuses every write under READ COMMITTED"),
    "max_error_count": ("0", "64", "the texts of warnings, which errors quote, are thrown away"),
    "enforce_storage_engine": ("MYISAM", "NULL", "tables get no transactions"),
}
"""Variable that a session of ours wants to change → the harmful value, the wanted one as SQL, and
the harm.
"""
_DDL_CONNECTIONS = 8
"""The driver's own: up to four statements at a time, the state, the lease, and a question now and
then.
"""
_FULL, _TIGHT = 256 * _MIB, 2 * _GIB
"""Free bytes of a local folder below which Spark can hardly start, and below which a catch-up may
fill it.
"""
_CLOCK = 10.0
"""Seconds between two clocks from which it shows."""
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "bucket": "What TiCDC writes, and what of it can be read.",
        "target": "The database server, its settings, and our account's rights.",
        "spark": "What Spark needs on this machine.",
        "network": "How the bucket and the target are reached.",
        "state": "What earlier runs left in the target.",
    }
)
"""Group → what it is about."""


class Verdict(StrEnum):
    """The one word for what a check found."""

    OK = "ok"
    WARN = "warn"
    """It works, but slower, with a weaker promise, or not for every table."""
    FAIL = "fail"
    """A run would end, or halt a table."""
    NOT_LOOKED_AT = "not looked at"
    """The text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    verdict: Verdict
    text: str
    """One line: the fact, with its figures."""
    remedy: str = ""
    """What to do, in a sentence; empty if there is nothing to do."""
    statements: tuple[str, ...] = ()
    """The remedy as SQL for an administrator of the target, each without a semicolon."""
    check: str = ""
    """The name of the check, see `checks.CHECKS`."""


def ok(text: str) -> Finding:
    """Return that all is well."""
    return Finding(Verdict.OK, text)


def warn(text: str, remedy: str, *statements: str) -> Finding:
    """Return a warning with its remedy."""
    return Finding(Verdict.WARN, text, remedy, statements)


def fail(text: str, remedy: str = "", *statements: str) -> Finding:
    """Return a fault; without a `remedy` the text holds it."""
    return Finding(Verdict.FAIL, text, remedy, statements)


def not_looked_at(why: str) -> Finding:
    """Return that nothing is known, and why."""
    return Finding(Verdict.NOT_LOOKED_AT, why)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return `FAIL` or `WARN` if any finding is that, else `OK`."""
    found = {each.verdict for each in findings}
    return next(
        (verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK
    )


def group_of(check: str) -> str:
    """Return the group of a check."""
    return check.partition("-")[0]


Judge = Callable[[Facts], Finding]


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    reads: str
    remedy: str
    judge: Judge

    @property
    def meaning(self) -> str:
        """What it finds."""
        return " ".join((self.judge.__doc__ or "").split())


CHECKS: dict[str, Check] = {}
"""Name → check, in the order in which they are shown. A name begins with its group."""


def name_of(judge: Judge) -> str:
    """Return the name of a check by its function."""
    return judge.__name__.replace("_", "-")


def _check(reads: str, remedy: str) -> Callable[[Judge], Judge]:
    """Make a function a check. `reads` is what it judges, and `remedy` what to do in general."""

    def made(judge: Judge) -> Judge:
        CHECKS[name_of(judge)] = Check(reads, remedy, judge)
        return judge

    return made


@_check("one page of a listing", "Correct the URI or the keys, or grant ListBucket.")
def bucket_reachable(facts: Facts) -> Finding:
    """Fail if the store does not answer, refuses keys or listing, or lacks bucket or folder.

    A run would end.
    """
    _ = facts.storage
    return ok(f"{facts.upstream.identity} answers, and may be listed")


@_check(
    "the file `metadata`, beside this machine's clock",
    "Give the changefeed's own folder, repair the changefeed, or set the clock that is wrong.",
)
def bucket_metadata(facts: Facts) -> Finding:
    """Fail if it is absent, or holds no checkpoint, or one that lies in the future.

    Nothing would be applied.
    """
    bucket = facts.bucket
    if bucket.checkpoint:
        return ok(
            f"metadata has the checkpoint {bucket.checkpoint} ({tso_time(bucket.checkpoint)})"
        )
    if bucket.likely:
        places = " or ".join(bucket.likely)
        return fail(
            "there is no metadata file here, but nearby",
            f"Give the changefeed's folder: --upstream-uri {places}",
        )
    odd = (each for each in bucket.warnings if each.startswith("metadata "))
    return fail(
        next(odd, "there is no metadata file: TiCDC has written no checkpoint here"),
        "Give the changefeed's sink URI as --upstream-uri, and check that the changefeed runs, and both clocks.",
    )


@_check("the age of the checkpoint", "Look at the changefeed.")
def bucket_checkpoint_age(facts: Facts) -> Finding:
    """Warn from 5 minutes on: the source itself is behind, or stopped."""
    lag = lag_of(facts.bucket.checkpoint, facts.now)
    if lag is None:
        return not_looked_at("there is no checkpoint")
    if lag > STALLED:
        return warn(
            f"the bucket's checkpoint is {span(lag)} old; TiCDC moves it every few seconds",
            "Look at the changefeed: cdc cli changefeed query. If it was stopped on purpose, all is well.",
        )
    return ok(f"the bucket's checkpoint is {span(lag)} old")


@_check(
    "all paths, by one listing, and a sample of files, as `inspect`",
    "See `storage-consumer inspect`, or grant GetObject.",
)
def bucket_layout(facts: Facts) -> Finding:
    """Warn of skipped objects and of oddities; fail if the bucket cannot be inspected.

    That is so where files may be listed and not read.
    """
    bucket = facts.bucket
    if not bucket.layouts:
        return warn(
            "no schema file is here yet",
            "Wait for the changefeed's first table; storage-consumer inspect shows more.",
        )
    text = f"{', '.join(bucket.layouts)}; {bucket.objects:,} objects, {len(bucket.tables):,} tables"
    # What is odd about `metadata` has a check of its own.
    odd = [each for each in bucket.warnings if bucket.checkpoint or "metadata" not in each]
    if odd:
        return warn(
            f"{text}. {'; '.join(odd[:_SHOWN])}", "See storage-consumer inspect for all of it."
        )
    return ok(". ".join((text, *bucket.notes)))


@_check(
    "the settings, beside what the files show",
    "Give the changefeed's TOML file with `--config`, and `--tz`.",
)
def bucket_settings(facts: Facts) -> Finding:
    """Fail if they contradict each other, or if one is missing that no file shows.

    Warn of what is assumed.
    """
    bucket = facts.bucket
    if against := bucket.contradictions:
        said = "; ".join(
            f"--{each.name} was given as {each.value!r}, but {each.origin}" for each in against
        )
        return fail(said, "Give the values of the changefeed: its TOML file with --config.")
    if missing := bucket.missing:
        said = "; ".join(f"--{each.name} is missing: {each.origin}" for each in missing)
        flags = " ".join(
            f"--{each.name} '<{BY_KEYWORD[each.keyword].metavar}>'" for each in missing
        )
        only_zone = all(each.keyword == "tz" for each in missing)
        config = "" if only_zone else "--config with the changefeed's TOML file, or "
        return fail(said, f"Give {config}{flags}.")
    if assumed := bucket.assumed:
        said = ", ".join(f"--{each.name} {each.value!r}" for each in assumed)
        return warn(
            f"assumed, since no file shows it: {said}", "Give it if the changefeed says another."
        )
    return ok("the settings fit what the files show")


@_check(
    "`file-expiration-days`, beside the age of the state's checkpoint",
    "Raise the expiry until the program has caught up.",
)
def bucket_expiry(facts: Facts) -> Finding:
    """Warn from half the expiry on, and fail beyond it: files are deleted unread."""
    days = facts.upstream.file_expiration_days
    if not days:
        return ok(
            "the changefeed's settings name no expiry; a rule of the store's own is not seen here"
        )
    known = facts.state.snapshot
    lag = (
        lag_of(known.checkpoint, facts.now)
        if known and known.upstream == facts.upstream.identity
        else None
    )
    if lag is None:
        return ok(f"files expire after {days} days; nothing is applied yet")
    text = f"the state's checkpoint is {span(lag)} old, and files expire after {days} days"
    if lag <= days * _DAY * _SOON:
        return ok(text)
    rule = fail if lag > days * _DAY else warn
    return rule(
        text, "Raise file-expiration-days in the changefeed until this program has caught up."
    )


@_check(
    "the export of `--dump`, as `run` reads it",
    "See [copies](../guide/copy.md), or what the error names.",
)
def bucket_export(facts: Facts) -> Finding:
    """Fail if a new feed could not begin with it: a run would end.

    Whether tables and their columns fit, `plan` tells.
    """
    copy, seen = facts.export, facts.bucket.checkpoint
    future = refused_future(copy.snapshot, facts.now, seen)
    if why := future or gap_proof(copy.snapshot, facts.config.loading.start_ts, seen):
        return fail(why)
    text = f"the export has {len(copy.tables):,} tables and views, as of {copy.snapshot} ({tso_time(copy.snapshot)})"
    return ok(text)


@_check("a login", "Correct address, account or password.")
def target_reachable(facts: Facts) -> Finding:
    """Fail if the server does not answer, or refuses the login."""
    _ = facts.server
    return ok(f"{facts.downstream.address} takes the login of {facts.downstream.user}")


@_check("`VERSION()`", "Use a version that is tested.")
def target_version(facts: Facts) -> Finding:
    """Warn of versions older than any that was tried."""
    kind, text = facts.variables.server_type, facts.variables.version
    # TiDB's own number stands behind that of the MySQL it speaks like.
    own = text.lower().partition("tidb-v")[2] if kind == "tidb" else text
    number = tuple(int(part) for part in own.replace("-", ".").split(".")[:2] if part.isdecimal())
    if number < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        return warn(
            f"{kind} {text} is older than what this program is written for ({oldest})",
            f"Use {_TESTED[kind]}, on which it is tested, or try storage-consumer plan first.",
        )
    return ok(f"{kind} {text}")


@_check("`read_only` and its kin", "Point at the primary, or make the server writable.")
def target_read_only(facts: Facts) -> Finding:
    """Fail if no row can be written, and warn if only this account may."""
    names = [name for name in READ_ONLY if facts.variables.is_on(name)]
    # With SUPER or its like an account passes the plain switch, but not the others.
    strong = [name for name in names if name != "read_only"]
    primary = "Is it a replica? Then point at its primary"
    if strong or (names and not facts.server.passes_read_only):
        # The stronger one first: MySQL's super_read_only also holds the plain one.
        statements = [
            f"SET GLOBAL {name} = OFF" for name in [*strong, *names] if name != "innodb_read_only"
        ]
        text = f"{', '.join(names)} is ON: no row can be written"
        return fail(text, f"{primary}. Else make it writable.", *dict.fromkeys(statements))
    if names:
        text = "read_only is ON, which this account may pass"
        return warn(
            text, f"{primary}: what is written here is not on it.", "SET GLOBAL read_only = OFF"
        )
    return ok("it takes writes")


@_check(
    "`SHOW GRANTS`, for each replicated database and the state schema",
    "Run the GRANT that is shown.",
)
def target_rights(facts: Facts) -> Finding:
    """Fail if a right is missing. Tables would halt, or a run would end."""
    lacking = facts.server.missing
    if not lacking:
        where = "" if facts.names else " for the state; no table is known"
        return ok(f"{facts.downstream.user} has all rights that are needed{where}")
    said = "; ".join(
        f"{', '.join(missing)} on {name}" for name, missing in sorted(lacking.items())[:_SHOWN]
    )
    more = f" and {len(lacking) - _SHOWN} more databases" if len(lacking) > _SHOWN else ""
    harm = "tables would halt at the first statement that needs them"
    if facts.downstream.state_schema in lacking:
        harm = "the state cannot be kept"
    grants = (facts.server.grants[name] for name in sorted(lacking))
    return fail(
        f"missing: {said}{more}; {harm}",
        "Grant them. Rights on single tables are not counted here.",
        *grants,
    )


@_check(
    "the variables that our session could not set",
    "Run the SET GLOBAL that is shown, or grant the right to set it.",
)
def target_session(facts: Facts) -> Finding:
    """Fail if an inherited value refuses writes or tables."""
    variables = facts.variables
    for name, (bad, wanted, harm) in _SESSION.items():
        if variables.session.get(name) != bad or (
            name == "binlog_format" and not variables.is_on("log_bin")
        ):
            continue
        return fail(
            f"{name} is {bad}, and our account may not set it: {harm}",
            "Change it for new connections, or grant the account SESSION_VARIABLES_ADMIN (MariaDB: BINLOG ADMIN).",
            f"SET GLOBAL {name} = {wanted}",
        )
    return ok(
        "sql_mode, isolation, time zone and all else that statements rely on is set for each session"
    )


@_check("`max_allowed_packet`", "Run the SET GLOBAL that is shown.")
def target_packet(facts: Facts) -> Finding:
    """Warn below 16 MiB: a large row halts its table."""
    size = facts.variables.number("max_allowed_packet")
    text = f"max_allowed_packet is {size / _MIB:g} MiB"
    if size < _PACKET:
        return warn(
            f"{text}: a larger row, as its text, halts its table; a row of TiDB may have 6 MiB",
            "Raise it, and in the server's configuration file as well.",
            f"SET GLOBAL max_allowed_packet = {_WANTED_PACKET}",
        )
    return ok(text)


@_check("`local_infile`", "Run the SET GLOBAL that is shown.")
def target_local_infile(facts: Facts) -> Finding:
    """Warn on MySQL and TiDB if it is off: rows are written more slowly."""
    if facts.variables.server_type == "mariadb":
        return ok("MariaDB gets its bulk statements")
    if not facts.local_infile:
        return ok("LOAD DATA LOCAL is switched off in the settings")
    if not facts.variables.is_on("local_infile"):
        return warn(
            "local_infile is OFF: rows are written by statements, which is slower",
            "Switch it on; the program never sends a file, only rows from memory.",
            "SET GLOBAL local_infile = ON",
        )
    return ok("local_infile is ON")


@_check("the time zone of `--tz`", "Load the time zone tables.")
def target_time_zone(facts: Facts) -> Finding:
    """Warn if the server does not know it by name.

    Backfilled defaults are then off by the shift of summer time.
    """
    name = facts.downstream.time_zone
    if not converted_zone(name):
        return ok(f"{name or 'UTC'} needs no time zone tables")
    if facts.server.knows_zone:
        return ok(f"{name} is known there")
    return warn(
        f"{name} is not known there: statements run with its offset of their time, so a new column's default is an hour "
        "off for the other half of the year",
        "Load the time zone tables: mysql_tzinfo_to_sql /usr/share/zoneinfo | mariadb mysql",
    )


@_check("triggers on replicated tables", "Drop it.")
def target_triggers(facts: Facts) -> Finding:
    """Warn of each: it acts on every row that is written."""
    found = _with_tables(facts).triggers
    replicated = {f"`{name.schema}`.`{name.table}`".lower() for name in facts.names}
    # A trigger's name counts in the database of its table.
    ours = [each for each in found if each.table.lower() in replicated]
    if not ours:
        return ok("no replicated table has a trigger")
    return warn(
        f"triggers act on every row that is written, and the source has none: {_some(ours)}",
        "Drop them, unless they are meant to be there.",
        *(f"DROP TRIGGER {each.name}" for each in ours),
    )


@_check("scheduled events in replicated databases", "Disable it.")
def target_events(facts: Facts) -> Finding:
    """Warn of each that is enabled while the scheduler runs."""
    found = _with_tables(facts).events
    if not found or not facts.variables.is_on("event_scheduler"):
        return ok("no event runs in a replicated database")
    return warn(
        f"events run in replicated databases, and may change rows: {_some(found)}",
        "Switch them off, unless they are meant to run.",
        *(f"ALTER EVENT {each.name} DISABLE" for each in found),
    )


@_check("foreign keys of tables outside that refer to replicated ones", "Drop it.")
def target_foreign_keys(facts: Facts) -> Finding:
    """Warn of each: it is neither checked nor cascaded."""
    found = _with_tables(facts).references
    if not found:
        return ok(
            "no table outside refers to a replicated one; foreign keys of the source are kept, and not enforced"
        )
    return warn(
        f"tables outside refer to replicated ones, and are neither checked nor cascaded to: {_some(found)}",
        "Drop these foreign keys, or replicate both tables.",
        *(
            f"ALTER TABLE {each.table} DROP FOREIGN KEY {each.name.partition('.')[2]}"
            for each in found
        ),
    )


@_check(
    "InnoDB's row format, page size and recovery mode, and MariaDB's `innodb_force_primary_key`",
    "Run the SET GLOBAL that is shown.",
)
def target_innodb(facts: Facts) -> Finding:
    """Fail if InnoDB takes no writes; warn if keys are shorter than the source's.

    Warn also if tables without a key are refused.
    """
    variables = facts.variables
    if variables.server_type == "tidb":
        return ok("TiDB has its own storage")
    if (recovery := variables.number("innodb_force_recovery")) > 0:
        text = f"innodb_force_recovery is {recovery}: InnoDB takes no writes"
        return fail(text, "Repair the server, then start it without this setting.")
    if variables.is_on("innodb_force_primary_key"):
        return warn(
            "innodb_force_primary_key is ON: tables without a primary key are refused, and the source takes them",
            "Switch it off, unless all tables of the source have one.",
            "SET GLOBAL innodb_force_primary_key = OFF",
        )
    row = variables.every.get("innodb_default_row_format", _ROW_FORMAT)
    if row != _ROW_FORMAT:
        return warn(
            f"innodb_default_row_format is {row}: keys over 767 bytes are refused, and the source takes 3,072",
            "Let new tables have the format DYNAMIC.",
            "SET GLOBAL innodb_default_row_format = DYNAMIC",
        )
    page = variables.number("innodb_page_size")
    if page < _PAGE:
        text = f"innodb_page_size is {page}: keys and rows have less room than at the source"
        return warn(text, "It can be chosen only when a server is set up: use one with 16 KiB.")
    return ok(f"rows are {row.lower()}, pages have {page >> 10} KiB")


@_check(
    "connections in use, and the server's limits",
    "Run the SET GLOBAL that is shown, or lower `--worker-count`.",
)
def target_connections(facts: Facts) -> Finding:
    """Warn if the workers may not find enough."""
    variables, used = facts.variables, facts.server.connections
    needed = facts.config.tuning.worker_count + _DDL_CONNECTIONS
    most, of_user = variables.number("max_connections"), variables.number("max_user_connections")
    if of_user and of_user < needed:
        text = f"max_user_connections is {of_user}, and up to {needed} are needed"
        return warn(
            text,
            "Raise it, or lower --worker-count.",
            f"SET GLOBAL max_user_connections = {needed}",
        )
    if most and most - used < needed:
        return warn(
            f"{used} of {most} connections are in use, and up to {needed} are needed",
            "Raise the limit, or lower --worker-count.",
            f"SET GLOBAL max_connections = {used + 2 * needed}",
        )
    return ok(f"room for {needed} connections ({used} in use{f' of {most}' if most else ''})")


@_check("the version of PySpark", "Install it with pip.")
def spark_pyspark(facts: Facts) -> Finding:
    """Fail if it is missing or not supported."""
    found = facts.surroundings.pyspark
    low, high = (".".join(map(str, each)) for each in PYSPARK)
    install = f"pip install 'pyspark>={low},<{high}'"
    if not found:
        return fail("PySpark is not installed in this Python", install)
    number = tuple(int(part) if part.isdecimal() else 0 for part in found.split(".")[:2])
    if found != "unknown" and not PYSPARK[0] <= number < PYSPARK[1]:
        return fail(
            f"PySpark {found} is none of the supported versions, {low} up to below {high}", install
        )
    return ok(f"PySpark {found}")


@_check("`java -version`, by JAVA_HOME or PATH", "Install it, or set JAVA_HOME.")
def spark_java(facts: Facts) -> Finding:
    """Fail without Java 17 or newer."""
    found = facts.surroundings.java
    install = f"Install Java {JAVA} or newer: apt-get install openjdk-{JAVA}-jre-headless. JAVA_HOME names its folder."
    if not found.program and found.home:
        text = f"JAVA_HOME is {found.home}, which has no bin/java"
        return fail(text, "Unset JAVA_HOME, or set it to the folder of a Java.")
    if not found.program:
        return fail("there is no Java on the PATH, and JAVA_HOME is not set", install)
    if not found.version:
        return fail(
            f"{found.program} does not tell its version: {found.said or 'it says nothing'}", install
        )
    if found.version < JAVA:
        return fail(
            f"{found.program} is Java {found.version}; Spark needs {JAVA} or newer", install
        )
    return ok(f"Java {found.version} ({found.program})")


@_check("SPARK_LOCAL_DIRS, or the folder for temporary files", "Set SPARK_LOCAL_DIRS.")
def spark_local_dirs(facts: Facts) -> Finding:
    """Fail if it cannot be written or has less than 256 MiB free; warn below 2 GiB."""
    found = facts.surroundings.local_dirs
    remedy = "Set SPARK_LOCAL_DIRS to a folder that is writable and has room."
    for each in found:
        if not each.is_writable:
            return fail(f"{each.path} is no folder that this user may write to", remedy)
        text = f"{each.path} has {each.free >> 20} MiB free"
        if each.free < _FULL:
            return fail(text, remedy)
        if each.free < _TIGHT:
            return warn(f"{text}; a catch-up keeps what it reads there", remedy)
    return ok(", ".join(f"{each.path} has {_gib(each.free)} free" for each in found))


@_check("the endpoint of the store", "Use https.")
def network_bucket(facts: Facts) -> Finding:
    """Warn if rows come in plain text from another machine."""
    upstream = facts.upstream
    endpoint = urlsplit(upstream.endpoint)
    if upstream.scheme == "file":
        return ok("the bucket is a folder of this machine's file system")
    if endpoint.scheme != "http":
        return ok("the store is reached over TLS, and verified")
    if endpoint.hostname in _LOOPBACK:
        return ok("on this machine")
    text = f"rows of {upstream.identity} come in plain text from {endpoint.netloc}"
    return warn(text, "Give an endpoint that begins with https://.")


@_check("TLS of the connection to the target", "Give `--ssl-mode verify-identity`.")
def network_target(facts: Facts) -> Finding:
    """Warn if rows travel in plain text to another machine, or if the server is not verified."""
    line, address = facts.server.line, facts.downstream.address
    verify = "--ssl-mode verify-identity (and --ssl-ca FILE, unless this machine trusts its CA)"
    if line.is_local:
        return ok(f"{address} is this machine")
    if not line.encrypts:
        return warn(
            f"rows travel to {address} in plain text",
            f"Enable TLS on the server, and give {verify}.",
        )
    if not line.verifies:
        return warn(
            f"TLS to {address}, but nothing verifies that it is the right server", f"Give {verify}."
        )
    return ok(f"TLS to {address}, and the server is verified")


@_check("the target's clock", "Set both by a time server.")
def network_clock(facts: Facts) -> Finding:
    """Warn if it differs from ours by more than 10 s."""
    ahead = facts.server.line.ahead
    if abs(ahead) > _CLOCK:
        which = "ahead of" if ahead > 0 else "behind"
        text = f"the target's clock is {abs(ahead):.0f} s {which} ours; lag and ages are wrong by as much"
        return warn(text, "Set both by a time server (chrony, systemd-timesyncd).")
    return ok("the target's clock and ours agree")


@_check("the version of the state", "Use the right program, or another `--state-schema`.")
def state_schema(facts: Facts) -> Finding:
    """Fail if this program cannot use it; warn if the next run migrates it.

    None is fine: the first run creates it.
    """
    version, name = facts.state.version, facts.downstream.state_schema
    if version is None:
        return ok(f"there is no state: the first run creates it ({name})")
    text = f"the state schema {name} has version {version}"
    if version == STATE_VERSION:
        return ok(text)
    if version in MIGRATED:
        return warn(
            f"{text}, and the next run migrates it to {STATE_VERSION}",
            "Back it up first: an older program cannot use it afterwards.",
        )
    return fail(
        f"{text}, and this program writes version {STATE_VERSION}",
        "Use the program that wrote it, or give this one its own state schema (--state-schema).",
    )


_AT_START: tuple[Judge, ...] = (
    target_version,
    target_packet,
    target_local_infile,
    target_innodb,
)
"""The checks that a run makes at its start: two queries show all that they judge."""


def _with_tables(facts: Facts) -> ServerFacts:
    """Return the server, if the replicated tables are known; else raise `Unread`."""
    server = facts.server
    if not facts.names:
        raise Unread("the bucket shows no table, or was not looked at")
    return server


def _some(found: Iterable[FoundObject]) -> str:
    return some_of([each.name for each in found], _SHOWN)


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / _MIB:.1f} MiB"


def examined(given: DoctorInput, groups: Collection[str] = tuple(GROUPS)) -> tuple[Finding, ...]:
    """Return one finding for each check of these groups, in the order of `CHECKS`."""
    facts = Facts(given, groups)
    return tuple(found_by(name, facts, groups) for name in CHECKS if group_of(name) in groups)


def found_by(name: str, facts: Facts, groups: Collection[str] = tuple(GROUPS)) -> Finding:
    """Return a check's finding; if facts are unreadable, one check reports the fault.

    The others were not looked at.

    `groups`: those that are examined; a check of another one reports nothing.
    """
    try:
        found = CHECKS[name].judge(facts)
    except Unread as fault:
        if fault.check == name:
            found = fail(fault.why)
        else:
            is_reported = fault.check and group_of(fault.check) in groups
            found = not_looked_at(f"{fault.check} failed" if is_reported else fault.why)
    return replace(found, check=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartFacts:
    """What two queries show, in place of all `Facts`."""

    variables: Variables
    local_infile: bool


def warn_at_start(query: Query, *, wants_local_infile: bool) -> None:
    """Log warnings at the start of a run, by two queries about the server's settings.

    Whatever fails here is logged at level debug: a run that cannot go on finds that out itself.
    """
    try:
        facts = cast(
            "Facts", _StartFacts(variables=variables_of(query), local_infile=wants_local_infile)
        )
        for judge in _AT_START:
            found = judge(facts)
            if found.verdict in (Verdict.WARN, Verdict.FAIL):
                statements = "; ".join(found.statements)
                _log.warning(
                    "doctor_finding",
                    check=name_of(judge),
                    text=found.text,
                    remedy=found.remedy,
                    statement=statements,
                )
    except Exception as error:  # noqa: BLE001 - nothing that only looks may stop a run
        _log.debug("doctor_failed", error=str(error))
