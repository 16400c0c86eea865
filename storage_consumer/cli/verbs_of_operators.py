"""The commands by which an operator decides: about statements, tables, loads and refused rows. See `verbs`."""

from __future__ import annotations

from storage_consumer.cli.verb import FlagsWithJson, Verb, flag, switch
from storage_consumer.cli.verb_options import (
    ROWS_PER_SECOND,
    SOURCE_PASSWORD_FILE,
    TABLE,
    WORKERS,
    of_the_target,
)
from storage_consumer.config import parsers

_NUMBER = parsers.integer(low=0, high=(1 << 64) - 1)
_LISTED = "`storage-consumer ddl` shows it"
_TSO = "`SELECT @@tidb_current_ts` or a dump's metadata show a TSO"


class DdlFlags(FlagsWithJson):
    """What `ddl` takes."""

    action: str = "list"
    table: str | None = flag(TABLE, "S.T")
    version: int | None = flag("The statement's version, as messages and the list show it.", "TSO", _NUMBER, _LISTED)
    checksum: int | None = flag(
        "Distinguishes statements of one table and version; the list shows it.", "N", _NUMBER, _LISTED
    )
    sql: str | None = flag("What `replace` runs; names without a database refer to the table's own.", "TEXT")


class TableFlags(FlagsWithJson):
    """What `table` takes."""

    action: str = "list"
    table: str | None = flag(TABLE, "S.T")
    at: int | None = flag(
        "TSO of the copy: it holds all rows up to this commit-ts, and none after it. Or its time with the zone, such as "
        "2026-11-23T10:00:00Z.",
        "TSO|TIME",
        parsers.instant,
        _TSO,
    )
    to: str | None = flag("The table's name in the target, as database.table.", "S.T")
    all: bool = switch("List all tables, also those that run, are skipped, left out or dropped.")


class LoadFlags(FlagsWithJson):
    """What `load` takes."""

    action: str = ""
    table: str | None = flag(TABLE, "S.T")
    dump: str | None = flag(
        "The export, as --dump of `run` takes it. It has to be as of the table's checkpoint or later, and to hold the table.",
        "URI",
    )
    dump_tz: str | None = flag(
        "Time zone of its TIMESTAMP values, where its files do not say it.", "ZONE", parsers.time_zone
    )
    source: str | None = flag(
        "The TiDB from which the table is exported first, as of now, into the empty folder that --dump names: nothing is locked or "
        "written at the source, and no Dumpling is needed. Its password comes from STORAGE_CONSUMER_SOURCE_PASSWORD if not from here.",
        "URI",
    )
    source_password_file: str | None = flag(SOURCE_PASSWORD_FILE, "FILE")
    workers: int | None = flag("Connections on which --source is read; 2 if left out.", "N", WORKERS)
    rows_per_second: int | None = flag(
        "The most rows that are read from --source, by all workers together; 0, the default, for any number.",
        "N",
        ROWS_PER_SECOND,
    )
    replace: bool = switch("Empty the target's table first; without it, the table has to be empty or not there.")
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


DECISIONS = (
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
        module="ddl_command",
    ),
    Verb(
        name="table",
        usage="[list|pause|resume|skip|reload-done|accept-keys|moved] [--table S.T] [--all] --downstream-uri URI [option …]",
        summary="list tables that are stopped or waiting; decide about one",
        description="""\
Shows the tables that are halted, paused or waiting, with their errors, and records what you decide about one. It writes one row into
the state schema. A running consumer obeys in its next round, without a restart; a stopped one obeys when it starts.""",
        examples=(
            "table --downstream-uri mysql://root@127.0.0.1:3306/",
            "table --all --downstream-uri mysql://root@127.0.0.1:3306/",
            "table pause --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
            "table resume --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/",
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
        module="table_command",
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
        module="quarantine_command",
    ),
)
