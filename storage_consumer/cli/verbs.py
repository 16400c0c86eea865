"""The commands: how each is used, its help, its flags, and the code that answers it.

Help, exit codes, reference pages and completion are generated from this table. It imports no
command, so that `run` and help need not wait for any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from types import MappingProxyType

from storage_consumer.cli.verb import (
    ROWS_PER_SECOND,
    SOURCE_PASSWORD_FILE,
    TABLE,
    WORKERS,
    FlagsOfAll,
    FlagsWithJson,
    Verb,
    flag,
    named_tables,
    of_both_ends,
    of_the_bucket,
    of_the_target,
    switch,
)
from storage_consumer.config import parsers
from storage_consumer.config.options import OPTIONS
from storage_consumer.config.parsers import did_you_mean
from storage_consumer.errors import ConfigError
from storage_consumer.rows.compared_layout import Key

PROGRAM = "storage-consumer"
RUN, SERVE = "run", "serve"
LOGGING = frozenset((RUN, SERVE))
"""Commands that go on until a signal, and write a log; the others print what they answer."""


def verb_named(name: str) -> Verb:
    """Return a command; raise `ConfigError`, naming the nearest one, if there is none."""
    if name not in VERBS:
        raise ConfigError(
            f"there is no command `{name}`{did_you_mean(name, VERBS)}; see {PROGRAM} --help"
        )
    return VERBS[name]


class ChangesFlags(FlagsOfAll):
    """What `changes` takes."""

    table: str | None = flag(TABLE, "S.T")
    key: str | None = flag(
        "Only the row with this primary key, as --format json prints it; values of several columns between commas, in the order "
        "of the table's columns.",
        "VALUE",
    )
    from_: int | None = flag(
        "From this commit ts on (inclusive): a TSO, a time with its zone, or -1h30m for so long ago. Without it from the beginning.",
        "TIME",
        parsers.recent_instant,
    )
    to: int | None = flag(
        "Up to this commit ts (inclusive). Without it up to the bucket's checkpoint.",
        "TIME",
        partial(parsers.recent_instant, is_end=True),
    )
    follow: bool = switch("Go on with what becomes complete, every flush-interval, until Ctrl-C.")
    format: str | None = flag(
        "How each change is printed: json without it.", "json|sql|undo-sql|flat|debezium"
    )


class ServeFlags(FlagsOfAll):
    """What `serve` takes."""

    meta_uri: str | None = flag(
        "Where the positions of clients are kept: mysql://user@host:3306/, also mariadb:// and tidb://, or sqlite:////folder/file.db for one machine. "
        "Its password comes from STORAGE_CONSUMER_DOWNSTREAM_PASSWORD if not from here.",
        "URI",
    )
    listen: str | None = flag(
        "Address and port for clients; 127.0.0.1:11111 if left out. Beyond this machine only destinations with users are served.",
        "HOST:PORT",
        parsers.listen_address,
    )
    destinations: str | None = flag(
        "Folder of destinations, one TOML file each, NAME.toml. Files that come, change or go are noticed.",
        "DIR",
        parsers.named_path,
    )


class StatusFlags(FlagsWithJson):
    """What `status` takes."""

    table: str | None = flag(TABLE, "S.T")
    max_lag: float | None = flag(
        "The oldest that the checkpoint may be, such as 90s or 5m; without it any age is healthy.",
        "DURATION",
        parsers.duration(),
    )
    batch: bool = switch(
        "It is no fault that nobody writes now: the feed runs with --once, from time to time."
    )
    watch: bool = switch("Show it again every 2 seconds, until Ctrl-C.")
    files: bool = switch("Name the first file of each directory that is still needed.")
    all: bool = switch("Show all tables and statements, not only the first 20.")


class PlanFlags(FlagsWithJson):
    """What `plan` takes."""

    table: str | None = flag(TABLE, "S.T")
    rows: bool = switch(
        "Read all data files to count rows; without it only files of up to 64 MiB in all are read."
    )
    sql: bool = switch("Only the statements, as a script with the reasons as comments.")
    all: bool = switch("Show all tables and statements, not only the first 20 of each.")


class DoctorFlags(FlagsWithJson):
    """What `doctor` takes."""

    only: str | None = flag(
        "Only these groups, separated by commas: bucket, target, spark, network, state.", "GROUP"
    )


class VerifyFlags(FlagsWithJson):
    """What `verify` takes."""

    source: str | None = flag(
        "The TiDB to compare with, with the parameters of --downstream-uri: tidb://user@host:4000/?ssl-ca=… . "
        "Its password comes from STORAGE_CONSUMER_SOURCE_PASSWORD if not from here.",
        "URI",
    )
    source_password_file: str | None = flag(SOURCE_PASSWORD_FILE, "FILE")
    table: str | None = flag(
        "Only these tables, by their names at the source: a rule in the filter's language, such as shop.orders or 'shop.*'.",
        "RULE",
    )
    quick: bool = switch("Only count rows and compare structures.")
    workers: int | None = flag("How many tables to compare at a time; 2 if left out.", "N", WORKERS)
    rows_per_second: int | None = flag(
        "The most rows that are read on each side, by all workers together: 50000 if left out, 0 for any number.",
        "N",
        ROWS_PER_SECOND,
    )
    chunk_rows: int | None = flag(
        "Rows of one chunk; 50000 if left out.", "N", parsers.integer(low=100, high=10_000_000)
    )
    resume: bool = switch("Go on with the comparison that was broken off last.")
    frozen: bool = switch(
        "Nothing writes to the source meanwhile, you promise: it is read as it is, and may be a MySQL or MariaDB."
    )
    wait: float | None = flag(
        "How long to wait for a moment at which no job writes a table; 5m if left out.",
        "DURATION",
        parsers.duration(),
    )
    repair: str = field(
        default="",
        metadata={
            "help": "Write the rows that differ as the source has them, beside a running consumer, and compare them again. "
            "--repair=print only prints the statements.",
            "metavar": "print",
            "parse": parsers.choice("true", "print"),
            "switch": True,
        },
    )
    repair_limit: int | None = flag(
        "The most rows of a table that are mended: a table with more is left as it is; 1000 if left out.",
        "N",
        parsers.integer(low=1, high=100_000),
    )


class HistoryFlags(FlagsWithJson):
    """What `history` takes."""

    table: str | None = flag(TABLE, "S.T")
    at: int | None = flag(
        "Show the whole structure in force at this version, commit-ts or time (with its zone), instead of all versions.",
        "TSO|TIME",
        parsers.instant,
        "`storage-consumer history` shows the TSO of each version",
    )


class RebindFlags(FlagsWithJson):
    """What `rebind` takes."""

    restored: bool = switch(
        "Bind even if the state is bound to this place already: its files were restored or copied over "
        "with the same content, and have other times or tags."
    )
    allow_missing: bool = switch(
        "Bind even if schema files that were read are missing because they were deleted on purpose."
    )
    allow_rewritten: bool = switch(
        "Bind even if finished data files have another size because TiCDC rewrote them; `run` reads "
        "them again, and halts a table that may have lost rows."
    )


class TsoFlags(FlagsWithJson):
    """What `tso` takes."""

    words: list[str] = field(default_factory=list)
    tz: str | None = flag(
        "Show times in this zone too, such as Asia/Shanghai or +08:00.", "ZONE", parsers.time_zone
    )


class InitFlags(FlagsWithJson):
    """What `init` takes."""

    output: str | None = flag("The file to write; storage-consumer.toml if left out.", "FILE")
    force: bool = switch("Overwrite the file if it exists.")


class CompletionFlags(FlagsWithJson):
    """What `completion` takes."""

    action: str = ""


_NUMBER = parsers.integer(low=0, high=(1 << 64) - 1)
_LISTED = "`storage-consumer ddl` shows it"
_TSO = "`SELECT @@tidb_current_ts` or a dump's metadata show a TSO"


class DdlFlags(FlagsWithJson):
    """What `ddl` takes."""

    action: str = "list"
    table: str | None = flag(TABLE, "S.T")
    version: int | None = flag(
        "The statement's version, as messages and the list show it.", "TSO", _NUMBER, _LISTED
    )
    checksum: int | None = flag(
        "Distinguishes statements of one table and version; the list shows it.",
        "N",
        _NUMBER,
        _LISTED,
    )
    sql: str | None = flag(
        "What `replace` runs; names without a database refer to the table's own.", "TEXT"
    )


class TableFlags(FlagsWithJson):
    """What `table` takes."""

    action: str = "list"
    table: tuple[str, ...] = named_tables(
        f"{TABLE} May be given several times, and be a rule in the filter's language, such as 'shop.*'."
    )
    at: int | None = flag(
        "TSO of the copy: it holds all rows up to this commit-ts, and none after it. Or its time with the zone, such as "
        "2026-11-23T10:00:00Z.",
        "TSO|TIME",
        parsers.instant,
        _TSO,
    )
    to: str | None = flag("The table's name in the target, as database.table.", "S.T")
    all: bool = switch(
        "Of `list`: also tables that run, are skipped, left out or dropped. Else decide about all that the action concerns: "
        "`pause` those that run, others those that are stopped. `skip` and `moved` do not take it."
    )


def _keys(given: object) -> tuple[Key, ...]:
    """Return keys that are written as JSON, each value as text."""
    # A number as it is written: a float has too few digits.
    found = json.loads(str(given), parse_float=str)
    keys = (
        [each if isinstance(each, list) else [each] for each in found]
        if isinstance(found, list)
        else []
    )
    values = [value for key in keys for value in key]
    if not values or any(
        isinstance(value, bool | dict | list) or value is None for value in values
    ):
        raise ValueError(
            f'a JSON list of keys is expected, such as [42, 43] or [[1, "a"]], not {given!r}'
        )
    return tuple(tuple(str(value).encode() for value in key) for key in keys)


class LoadFlags(FlagsWithJson):
    """What `load` takes."""

    action: str = ""
    table: str | None = flag(TABLE, "S.T")
    dump: str | None = flag(
        "The export, as --dump of `run` takes it. It has to be as of the table's checkpoint or later, and to hold the table.",
        "URI",
    )
    dump_tz: str | None = flag(
        "Time zone of its TIMESTAMP values, where its files do not say it.",
        "ZONE",
        parsers.time_zone,
    )
    source: str | None = flag(
        "The TiDB from which the table is exported first, as of now, into the empty folder that --dump names: nothing is locked or "
        "written at the source, and no Dumpling is needed. Its password comes from STORAGE_CONSUMER_SOURCE_PASSWORD if not from here.",
        "URI",
    )
    source_password_file: str | None = flag(SOURCE_PASSWORD_FILE, "FILE")
    workers: int | None = flag(
        "Connections on which --source is read; 2 if left out.", "N", WORKERS
    )
    rows_per_second: int | None = flag(
        "The most rows that are read from --source, by all workers together; 0, the default, for any number.",
        "N",
        ROWS_PER_SECOND,
    )
    keys: tuple[Key, ...] | None = flag(
        "Instead of an export: only the rows with these keys, written from --source as it has them, while the table goes on. JSON, such as "
        "'[42, 43]', or '[[1, \"a\"]]' for a key of several columns.",
        "JSON",
        _keys,
    )
    replace: bool = switch(
        "Empty the target's table first; without it, the table has to be empty or not there."
    )
    at: int | None = flag(
        "You made the copy yourself, as of this TSO: nothing is loaded, and the table goes on after it. The same as `table reload-done`.",
        "TSO|TIME",
        parsers.instant,
        _TSO,
    )
    all: bool = switch("List also loads that have ended.")


class QuarantineFlags(FlagsWithJson):
    """What `quarantine` takes."""

    action: str = "list"
    table: str | None = flag(TABLE, "S.T")
    key: str | None = flag("One row of the table, by its key as the list shows it.", "TEXT")
    all: bool = switch("The rows of all tables.")
    yes: bool = switch("What `drop` needs, since it cannot be undone.")


_VERBS = (
    Verb(
        name=RUN,
        usage="--upstream-uri URI --downstream-uri URI [option …]",
        summary="apply the bucket until a signal arrives",
        description="""\
Reads the change files that TiCDC's storage sink writes (CSV or canal-json, in a folder, S3, Google Cloud Storage or
Azure) and keeps a MySQL-compatible database equal to the source: DDL and rows, up to the checkpoint in the bucket's
`metadata`, through Spark. It only reads the bucket; its state lives in the target. It may be killed at any moment and started again.""",
        options=OPTIONS,
    ),
    Verb(
        name="inspect",
        usage="--upstream-uri URI [--config FILE] [--json] [option …]",
        summary="show what a bucket is and needs; run this first",
        description=f"""\
Looks at a bucket: one listing and a bounded sample of its files. It needs no target, starts no Spark and writes nothing.
It prints layout, protocol, tables, versions, checkpoint, and each setting of TiCDC that shapes the files: given, inferred (and
from which file), not decidable, or contradicting what was given. It ends with a `{PROGRAM} run` command to continue with.""",
        examples=("inspect --upstream-uri file:///data/bucket",),
        takes=FlagsWithJson,
        options=of_the_bucket(),
        module="bucket_commands",
    ),
    Verb(
        name="changes",
        usage="--upstream-uri URI [--table S.T [--key VALUE]] [--from TIME] [--to TIME | --follow] [--format FORMAT] [option …]",
        summary="print what happened: row changes and DDL, in commit order, each once",
        description="""\
Reads the changes of a bucket up to its checkpoint and prints them in commit order, one a line, what TiCDC delivered repeatedly once. It needs
no target, no state and no Spark, and only reads. Of a table it reads the files that may hold changes of the window.

Formats: json; sql, statements that repeat the changes; undo-sql, statements that take the changes of a window back, the last one
first; flat, canal's FlatMessages; debezium, Debezium's envelopes. A window needs old values to be taken back, which CSV has with output-old-value.""",
        examples=(
            "changes --upstream-uri s3://bucket/prefix --table shop.orders --key 42 --from 2026-11-25T00:00:00Z",
            "changes --upstream-uri s3://bucket/prefix --table shop.orders --from 470607624255045632 --to 470607630546501632 --format undo-sql",
            "changes --upstream-uri s3://bucket/prefix --follow --format flat",
        ),
        takes=ChangesFlags,
        options=of_the_bucket(
            "filter", "skip-commit-ts", "flush-interval", "gap-timeout", "retry-limit"
        ),
        module="changes_command",
    ),
    Verb(
        name=SERVE,
        usage="--destinations DIR --meta-uri URI [--upstream-uri URI] [--listen HOST:PORT] [option …]",
        summary="give changes to canal's clients: get, ack, rollback",
        description="""\
Serves the changes of buckets by canal's TCP protocol, so that clients of canal work unchanged: whole commits, in commit order, up to the
bucket's checkpoint. A client continues after what it acknowledged. It needs neither Spark nor a target. What a destination's
file leaves open, such as its bucket, is taken from here. A second server on the same positions stands by.""",
        examples=(
            "serve --upstream-uri s3://bucket/prefix --meta-uri mysql://app@db:3306/ --destinations /etc/storage-consumer/destinations",
            "serve --listen 127.0.0.1:11111 --meta-uri sqlite:////var/lib/storage-consumer/positions.db --destinations conf.d",
        ),
        takes=ServeFlags,
        options=of_the_bucket(
            "filter", "skip-commit-ts", "flush-interval", "gap-timeout", "log-level"
        ),
        module="serve_command",
    ),
    Verb(
        name="status",
        usage="[--table S.T] [--max-lag DURATION] [--watch] [--json] --downstream-uri URI [option …]",
        summary="show health, lag, what stopped, and the next command",
        description="""\
Shows who writes and what it is doing, how old the checkpoint is (of all tables, and of those that are not stopped), the
tables that are halted or waiting with their reasons and the next commands to type, and the statements that run or wait. It reads
the state in the target alone, so it works while the program is down. Its exit code makes it a check for cron, Nagios or Kubernetes.""",
        examples=(
            "status --downstream-uri mysql://root@127.0.0.1:3306/",
            "status --max-lag 5m --json --downstream-uri mysql://root@127.0.0.1:3306/",
            "status --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=StatusFlags,
        options=of_the_target(),
        module="status_command",
    ),
    Verb(
        name="plan",
        usage="--upstream-uri URI --downstream-uri URI [--table S.T] [--rows] [--sql] [--all] [--json] [option …]",
        summary="show what the next round would do, without doing it: rows, statements, skips and halts",
        description="""\
Plans the next round by the engine's own rules and writes nothing: the rows of each table by files and bytes (and numbers, where
the files are few or --rows is given), each statement as it would run on this target beside the original, with the reason for each
change, what would be skipped, and what would halt. The first statement of each table is checked against the target; later ones are
shown, and said to be unchecked. It needs rights to read only, starts no Spark, and may run beside a consumer.""",
        examples=(
            "plan --upstream-uri s3://bucket/prefix --config changefeed.toml --downstream-uri mysql://root@127.0.0.1:3306/",
            "plan --sql --table shop.orders --upstream-uri s3://bucket/prefix --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=PlanFlags,
        options=OPTIONS,
        module="plan_command",
    ),
    Verb(
        name="doctor",
        usage="[--upstream-uri URI] [--downstream-uri URI] [--only GROUP] [--json] [option …]",
        summary="check bucket, target, Spark, network and state; say what to mend, and how",
        description="""\
Looks at everything that a consumer needs, and says of each thing whether it is ok, with one line and a remedy; what a statement can
mend is printed as one. It takes the command line of `run`, needs rights to read only, changes nothing, starts no Spark, and may run
beside a consumer. Of bucket and target one may be left out. It lists the whole bucket once. What `run` refuses by itself in its first
round, with the next step, is not checked here.""",
        examples=(
            "doctor --upstream-uri s3://bucket/prefix --config changefeed.toml --downstream-uri mysql://root@127.0.0.1:3306/",
            "doctor --only target,state --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=DoctorFlags,
        options=OPTIONS,
        module="doctor_command",
    ),
    Verb(
        name="verify",
        usage="--source tidb://USER@HOST:4000/ --downstream-uri URI [--table RULE] [--quick] [--json] [option …]",
        summary="compare the target with the source, while both go on",
        description="""\
Compares tables with the TiDB that the changefeed reads, both as of the same commit-ts: a snapshot of the target in a moment at which no
job writes the table, and the source as of the table's checkpoint. Structures and all rows are compared, by checksums that the servers
compute. It writes nothing but its result into the state, needs SELECT on the source, and may run beside a consumer.""",
        examples=(
            "verify --source tidb://reader@tidb:4000/ --downstream-uri mysql://root@127.0.0.1:3306/",
            "verify --table 'shop.*' --quick --source tidb://reader@tidb:4000/ --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=VerifyFlags,
        options=of_the_target("upstream-uri"),
        module="verify_command",
    ),
    Verb(
        name="ddl",
        usage="[list|done|skip|replace] [--table S.T --version TSO] --downstream-uri URI [option …]",
        summary="list statements that stopped a table; decide about one",
        description="""\
Shows the statements that block tables (planned, started or failed) with their errors, and records what you decide about one
of them. It writes one row into the state schema. A running consumer obeys in its next round, so that the table goes on
without a restart; a stopped one obeys when it starts. Repeating a decision changes nothing.""",
        examples=(
            "ddl --downstream-uri mysql://root@127.0.0.1:3306/",
            "ddl skip --table shop.orders --version 470607624365932544 --downstream-uri mysql://root@127.0.0.1:3306/",
            "ddl replace --table shop.orders --version 470607624365932544 --sql 'ALTER TABLE orders ADD COLUMN note TEXT' …",
        ),
        actions=(
            ("list", "show what waits"),
            ("done", "you ran it manually: record it as done, run nothing"),
            ("skip", "do not run it, go on"),
            ("replace", "run the text of --sql in its place; what TiCDC wrote stays recorded"),
        ),
        takes=DdlFlags,
        options=of_the_target(),
        module="decision_commands",
    ),
    Verb(
        name="table",
        usage="[list|pause|resume|skip|reload-done|accept-keys|moved] [--table S.T … | --all] --downstream-uri URI [option …]",
        summary="list tables that are stopped or waiting; decide about them",
        description="""\
Shows the tables that are halted, paused or waiting, with their errors, and records what you decide about one or several. It writes one row for each
into the state schema. A running consumer obeys in its next round, without a restart; a stopped one obeys when it starts.""",
        examples=(
            "table --downstream-uri mysql://root@127.0.0.1:3306/",
            "table --all --downstream-uri mysql://root@127.0.0.1:3306/",
            "table pause --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
            "table resume --table shop.orders --table 'crm.*' --downstream-uri mysql://root@127.0.0.1:3306/",
            "table resume --all --downstream-uri mysql://root@127.0.0.1:3306/",
            "table reload-done --table shop.orders --at 470607624365932544 --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        actions=(
            ("list", "show what is halted, paused or waiting"),
            (
                "pause",
                "stop the table, also across restarts, until `resume` or a copy; it holds back the checkpoint",
            ),
            ("resume", "try the table again from where it stopped; ends a pause"),
            (
                "skip",
                (
                    "leave the table out for good: its rows and statements are not applied, and it does not hold back "
                    "the checkpoint; a copy brings it back: `load`"
                ),
            ),
            (
                "reload-done",
                (
                    "you gave the target a copy of the table as of the TSO --at yourself: all rows and statements up to "
                    "there count as done, and files that hold nothing later are not waited for"
                ),
            ),
            (
                "accept-keys",
                (
                    "somebody changed its unique keys in the target, and the source has them too: accept them, and try "
                    "it again"
                ),
            ),
            ("moved", "you renamed it in the target to --to, because the routes have changed"),
        ),
        takes=TableFlags,
        options=of_the_target(),
        module="decision_commands",
    ),
    Verb(
        name="load",
        usage="[list|pause|resume|cancel] [--table S.T [--dump URI [--source URI] [--dump-tz ZONE] [--replace] | --at TSO]] "
        "--downstream-uri URI [option …]",
        summary="load a table from an export while the others go on; list loads",
        description="""\
Asks for a table to be loaded from an export by Dumpling or mydumper, or one that it makes of a live TiDB, and shows how far loads are. A
consumer reads the export with the bucket's credentials. It writes one row into the state schema. A running consumer begins before its next round, a stopped one when it starts; the
other tables go on, and the table goes on where the export ends, without a gap or a repeat.""",
        examples=(
            "load --table shop.orders --dump s3://bucket/full --downstream-uri mysql://root@127.0.0.1:3306/",
            "load --table shop.orders --dump s3://bucket/full --replace --downstream-uri mysql://root@127.0.0.1:3306/",
            "load --table shop.orders --source tidb://reader@tidb:4000/ --dump s3://bucket/orders --upstream-uri s3://bucket/feed …",
            "load --downstream-uri mysql://root@127.0.0.1:3306/",
            "load cancel --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        actions=(
            ("list", "show the tables that are being loaded, and the loads that were refused"),
            ("pause", "stop a load, also across restarts; it keeps what is written"),
            ("resume", "go on with a load that was paused"),
            (
                "cancel",
                (
                    "end a load: one that no consumer has looked at leaves the table as it was, one that has begun leaves the table out, as "
                    "`table skip` does, with the rows that it has"
                ),
            ),
        ),
        without_action="with --dump or --at: load the table; else list",
        takes=LoadFlags,
        options=of_the_target("upstream-uri"),
        module="load_command",
    ),
    Verb(
        name="quarantine",
        usage="[list|retry|drop] [--table S.T [--key TEXT] | --all] [--yes] --downstream-uri URI [option …]",
        summary="list rows that the target refused; try them again, or give them up",
        description="""\
Shows the rows that the target refused and that --quarantine kept aside, each with its file, its commit-ts and the reason, and records
what you decide about them. A running consumer tries rows again at the start of its next round, a stopped one when it starts. A row
that its source changes meanwhile leaves the quarantine by itself.""",
        examples=(
            "quarantine --downstream-uri mysql://root@127.0.0.1:3306/",
            "quarantine retry --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
            "quarantine drop --table shop.orders --key 'id = 7' --yes --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        actions=(
            ("list", "show what the quarantine holds"),
            ("retry", "try rows again, after you made the target's table fit"),
            ("drop", "remove rows for good: their table stays different from the source"),
        ),
        takes=QuarantineFlags,
        options=of_the_target(),
        module="decision_commands",
    ),
    Verb(
        name="history",
        usage="[--table S.T] --downstream-uri URI [option …]",
        summary="show the versions of a table and their statements",
        description="""\
Shows what the state schema keeps of a table: each version with its time, its statement, what changed in the columns, and its
entry in the journal. Without --table: one line per table. It needs no bucket and only reads.""",
        examples=(
            "history --downstream-uri mysql://root@127.0.0.1:3306/",
            "history --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
            "history --table shop.orders --at 470607624365932544 --json --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=HistoryFlags,
        options=of_the_target(),
        module="history_command",
    ),
    Verb(
        name="rebind",
        usage="--upstream-uri URI --downstream-uri URI [--restored] [--allow-missing] [--allow-rewritten] [option …]",
        summary="continue with a bucket that was copied or moved",
        description="""\
Binds the state in the target to another place of the same bucket: files that were copied or moved. It compares what the
state knows with what is there (contents of schema files, sizes of finished data files, metadata), and changes nothing if they
differ. No consumer may run meanwhile. Repeating it changes nothing; --restored accepts the files in the same place as they are now.""",
        examples=(
            "rebind --upstream-uri s3://new-bucket/prefix --downstream-uri mysql://root@127.0.0.1:3306/",
            "rebind --restored --upstream-uri s3://bucket/prefix --downstream-uri mysql://root@127.0.0.1:3306/",
        ),
        takes=RebindFlags,
        options=of_the_target("upstream-uri"),
        module="rebind_command",
    ),
    Verb(
        name="tso",
        usage="[TSO|TIME|now …] [--tz ZONE] [--json]",
        summary="convert between a TSO and its time, both ways",
        description="""\
Shows each TSO, time or `now` as a TSO and as a time: in UTC, and in the zone of --tz. A TSO is a number of milliseconds since 1970 and a
logical part of 18 bits; a time is given with its zone, and means the first TSO of its millisecond. Without words: `now`, by this
machine's clock. It needs neither bucket nor target.""",
        examples=("tso 470607624365932544", "tso 2026-11-23T10:00:00Z now --tz Asia/Shanghai"),
        words="TSO|TIME|now",
        takes=TsoFlags,
        module="local_commands",
    ),
    Verb(
        name="init",
        usage="--upstream-uri URI [--downstream-uri URI] [--output FILE] [--force] [option …]",
        summary="write a commented configuration for this bucket and target",
        description=f"""\
Inspects a bucket and writes a TOML file for `{PROGRAM} run --config FILE`: each setting that was given or inferred, with where
it comes from, and commented out what nobody can know but you. The file holds no secret, and only you may read it (mode 0600).
Of the target it asks what `doctor` asks, and writes what is to be mended into the file as comments; it changes nothing there.
Without --downstream-uri its place in the file is left for you to fill in.""",
        examples=(
            "init --upstream-uri file:///data/bucket --downstream-uri mysql://root@127.0.0.1:3306/ --tz UTC",
            "init --upstream-uri s3://bucket/prefix --output /etc/storage-consumer/shop.toml",
        ),
        takes=InitFlags,
        options=of_both_ends(),
        module="bucket_commands",
    ),
    Verb(
        name="completion",
        usage="[bash|zsh|fish] > FILE",
        summary="print a completion script for a shell",
        description="""\
Prints a completion script for a shell. It is made from the same tables as the help, and starts no Python when you press TAB.
Make it again after an upgrade.""",
        examples=("completion bash", "completion zsh", "completion fish"),
        actions=(
            ("bash", "for ~/.local/share/bash-completion/completions/storage-consumer"),
            ("zsh", "for a file _storage-consumer in a directory of $fpath"),
            ("fish", "for ~/.config/fish/completions/storage-consumer.fish"),
        ),
        without_action="The shell; that of $SHELL if left out.",
        takes=CompletionFlags,
        module="local_commands",
    ),
)
VERBS: Mapping[str, Verb] = MappingProxyType({verb.name: verb for verb in _VERBS})
"""Name → command, in the order of the help."""
