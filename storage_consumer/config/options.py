"""The one table of options: it is the source of flags, keywords, environment variables, TOML keys and help."""

from __future__ import annotations

from dataclasses import replace

from storage_consumer.config import filter_and_routes, parsers
from storage_consumer.config.format_options import FORMAT
from storage_consumer.config.option import OWN_TABLE, Option, switch
from storage_consumer.config.settings import SSL_MODES, Downstream, Loading, Monitoring, Tuning

# The defaults stand in the records of the settings; the options only show them.
_TUNING = Tuning()
_MONITORING_DEFAULTS = Monitoring()
_DOWNSTREAM_STATE_SCHEMA = Downstream().state_schema


def _certificate(name: str, help_text: str) -> Option:
    return Option(name, help_text, parse=parsers.path, metavar="FILE", uri=("downstream", name))


def _pace(name: str, seconds: float, help_text: str, *, low: float = 0.0) -> Option:
    return Option(
        name,
        help_text,
        parse=parsers.duration(low=low),
        default=seconds,
        shown_default=f"{seconds:g}s",
        metavar="DURATION",
    )


_WHAT = (
    Option(
        "upstream-uri",
        "The bucket: file:///dir, s3://bucket/prefix, gcs://bucket/prefix or azure://container/prefix. TiCDC's --sink-uri fits unchanged, parameters included.",
        aliases=("sink-uri",),
        metavar="URI",
    ),
    Option(
        "downstream-uri",
        "The target: mysql://user@host:3306/, also tidb:// and mariadb://, and +ssl of each.",
        metavar="URI",
    ),
    Option(
        "config",
        "TOML file: the changefeed's own, unchanged, and/or one with our [consumer] table. It may also be what `cdc cli changefeed "
        "create` or `query` printed. May be given several times; "
        "a later file overrides an earlier one. (The environment variable separates several files by ':'.)",
        metavar="FILE",
        toml="",
        parse=parsers.config_paths,
        default=None,
        shown_default="none",
        repeatable=True,
    ),
)

_SELECTING = (
    Option(
        "filter",
        "Which tables to replicate: a rule of TiCDC's table filter, such as 'shop.*' or '!shop.items'. May be "
        "given several times; the last one that matches a table decides. (The environment variable takes one per "
        "line, or a TOML array.)",
        metavar="RULE",
        parse=filter_and_routes.rules,
        default=(),
        shown_default="every table",
        toml=f"{OWN_TABLE}.filter.rules",
        repeatable=True,
    ),
    Option(
        "event-filter",
        "Which statements not to run, as an inline table of TOML with `matcher` and `ignore-event` or "
        "`ignore-sql`: "
        '\'{matcher = ["shop.*"], ignore-event = ["drop table"]}\'. May be given several times.',
        metavar="TABLE",
        parse=filter_and_routes.event_filters,
        default=(),
        shown_default="none",
        toml=f"{OWN_TABLE}.filter.event-filters",
        repeatable=True,
    ),
    Option(
        "route",
        "What tables are called in the target, as an inline table of TOML with `matcher` and `target-schema` or "
        "`target-table`: "
        '\'{matcher = ["shop.*"], target-schema = "copy", target-table = "{table}_old"}\'. May be given several times; the first '
        "one that matches a table applies.",
        metavar="TABLE",
        parse=filter_and_routes.routes,
        default=(),
        shown_default="none",
        toml=f"{OWN_TABLE}.routes",
        repeatable=True,
    ),
)

_COPY = (
    Option(
        "start-ts",
        "The changefeed's start-ts: a TSO, or a time with its zone, such as 2026-11-23T10:00:00Z. The bucket "
        "holds the changes after it, and none from before: a new feed says so, since a source that had rows by then needs a copy too. "
        "Given by hand without --dump it says --no-copy as well.",
        parse=parsers.instant,
        default=Loading().start_ts,
        shown_default="what the changefeed's JSON in --config says, else unknown",
        toml=f"{OWN_TABLE}.load.start-ts",
        metavar="TSO|TIME",
    ),
    Option(
        "dump",
        "An export of the source by Dumpling or mydumper, which a new feed loads before it applies changes: file:///dir, s3://bucket/prefix, "
        "gcs:// or azure://, read with the bucket's credentials. Options of Dumpling that change what its files mean are its parameters: "
        "'s3://bucket/full?escape-backslash=false&csv-separator=|'. A feed that has begun keeps the copy that it began with.",
        toml=f"{OWN_TABLE}.load.dump",
        metavar="URI",
        shown_default="none: the target has what the source had at start-ts",
    ),
    Option(
        "dump-tz",
        "Time zone of the TIMESTAMP values in the export: that of the server's `time_zone` when Dumpling ran, if it was given none.",
        parse=parsers.time_zone,
        toml=f"{OWN_TABLE}.load.dump-tz",
        metavar="ZONE",
        shown_default="what its SQL files say: needed for TIMESTAMP columns else",
    ),
    Option(
        "source",
        "The TiDB that the changefeed reads, as tidb://USER@HOST:4000/. A new feed exports all of its tables as of one TSO into a new folder below "
        "--dump, or beside the bucket's prefix, and begins with that. It takes SELECT and SHOW VIEW on the source, and no Dumpling; nothing is locked there. "
        "With --config of the changefeed, its filter counts.",
        toml=f"{OWN_TABLE}.load.source",
        metavar="URI",
        shown_default="none: nothing is exported",
    ),
    Option(
        "source-password-file",
        "File that holds the source's password (one newline at its end is ignored).",
        parse=parsers.path,
        toml=f"{OWN_TABLE}.load.source-password-file",
        metavar="FILE",
    ),
    Option(
        "source-password",
        "The source's password. There is no flag, because other users can read a command line.",
        flag=False,
        toml="",
    ),
    Option(
        "no-copy",
        "Begin without a copy although the source had tables before the changefeed began: those that the target lacks are created from "
        "their columns, without the rows from before and without keys but the primary one. Without it such a feed does not begin. "
        "Leave it in the command line: such a table may show first with a change of much later.",
        parse=parsers.boolean,
        default=False,
        switch=True,
        toml=f"{OWN_TABLE}.load.no-copy",
    ),
)

_TARGET = (
    Option(
        "downstream-password-file",
        "File that holds the target's password (one newline at its end is ignored).",
        parse=parsers.path,
        metavar="FILE",
    ),
    Option(
        "downstream-password",
        "The target's password. There is no flag, because other users can read a command line.",
        flag=False,
        toml="",
    ),
    Option(
        "state-schema",
        "Schema in the target that holds the consumer's own tables: lease, checkpoints, DDL journal.",
        parse=parsers.schema_name,
        default=_DOWNSTREAM_STATE_SCHEMA,
        uri=("downstream", "state-schema"),
        metavar="NAME",
    ),
    _certificate(
        "ssl-ca",
        "CA certificate that must have signed the target's certificate (default: those that this machine trusts); "
        "enables TLS.",
    ),
    _certificate("ssl-cert", "Client certificate for the target; enables TLS."),
    _certificate("ssl-key", "Private key of the client certificate."),
    Option(
        "ssl-mode",
        "How strictly TLS is used, in the terms of MySQL's programs: disabled, preferred (where the server "
        "offers it; verifies nothing), "
        "required (verifies nothing), verify-ca, or verify-identity (CA and host name).",
        parse=parsers.choice(*SSL_MODES),
        uri=("downstream", "ssl-mode"),
        shown_default="verify-identity with TLS, else preferred",
        metavar="|".join(SSL_MODES),
    ),
    switch(
        "allow-unverified-server",
        "Whether to send the password itself to a server that nothing verifies; otherwise it gets only the response "
        "to a challenge.",
    ),
    Option(
        "connect-timeout",
        "How long one attempt to connect to the target may take, from resolving its name to a session that is ready.",
        parse=parsers.whole_seconds,
        default=Downstream().connect_timeout,
        shown_default=f"{Downstream().connect_timeout}s",
        uri=("downstream", "timeout"),
        metavar="DURATION",
    ),
    Option(
        "quarantine",
        "Tables that go on without a row that the target refuses for what it holds, such as a value that is too long: the row is "
        "kept in the state, and the table is no longer equal until it is retried. A rule like those of --filter, such as 'shop.*' "
        "or '!shop.items'; may be given several times. Other tables halt at such a row.",
        metavar="RULE",
        parse=filter_and_routes.rules,
        default=_TUNING.quarantine,
        shown_default="no table",
        repeatable=True,
    ),
    Option(
        "quarantine-limit",
        "Most rows of one table in the quarantine; one more halts the table.",
        parse=parsers.integer(low=1, high=10_000),
        default=_TUNING.quarantine_limit,
        metavar="N",
    ),
    switch(
        "local-infile",
        "Whether to send rows with LOAD DATA LOCAL, from memory, if the server allows it; otherwise with statements.",
        default=_TUNING.local_infile,
    ),
)

_PACE = (
    _pace("flush-interval", _TUNING.flush_interval, "Time between two polls of the bucket.", low=0.1),
    _pace(
        "ddl-at-checkpoint-wait",
        _TUNING.ddl_at_checkpoint_wait,
        "How long the bucket's checkpoint must stay unchanged before a DDL at exactly that ts is run.",
    ),
    Option(
        "ddl-lock-wait",
        "How long one attempt of a DDL waits for locks that others hold on its tables; then the log names them, "
        "and the DDL is tried again.",
        parse=parsers.whole_seconds,
        default=Downstream().ddl_lock_wait,
        shown_default=f"{Downstream().ddl_lock_wait}s",
        metavar="DURATION",
    ),
    _pace(
        "ddl-patience",
        _TUNING.ddl_patience,
        "How long to wait for a DDL that lost its connection while the target still runs it.",
    ),
    _pace(
        "gap-timeout",
        _TUNING.gap_timeout,
        "How long to wait for a missing file before its table halts; the other tables go on.",
    ),
    _pace(
        "full-listing-interval",
        _TUNING.full_listing_interval,
        "Time between two listings of the whole bucket; in between, finished directories are skipped.",
        low=1.0,
    ),
    _pace(
        "lease-ttl",
        _TUNING.lease_ttl,
        "How long a silent owner keeps the target; then another process may take over.",
        low=3.0,
    ),
    Option(
        "standby",
        "Whether to wait as long as another process is the writer, and then take over. If false, the program "
        "exits with code 3 after lease-ttl.",
        parse=parsers.boolean,
        default=_TUNING.standby,
        shown_default="true, with --once false",
        switch=True,
        metavar="BOOL",
    ),
    _pace(
        "retry-limit",
        _TUNING.retry_limit,
        "How long to retry a bucket or target that does not answer before the program exits with code 1.",
    ),
)

_SPARK = (
    Option(
        "spark-master",
        "Where the Spark job runs.",
        parse=parsers.spark_master,
        default=_TUNING.spark_master,
        shown_default="what spark-submit says, else local[*]",
        metavar="URL",
    ),
    Option(
        "partitions",
        "Write partitions of a round's Spark job; 0: derived from bytes and cores.",
        parse=parsers.integer(low=0, high=100_000),
        default=_TUNING.partitions,
        metavar="N",
    ),
    Option(
        "worker-count",
        "Maximum number of connections that write rows concurrently, however many cores all executors have; as "
        "in TiCDC's MySQL sink.",
        parse=parsers.integer(low=1, high=10_000),
        default=_TUNING.worker_count,
        uri=("downstream", "worker-count"),
        metavar="N",
    ),
)

_MONITORING = (
    Option(
        "metrics-listen",
        "Where to answer over HTTP while the program runs: the status page (/), /metrics, /healthz and /readyz. A port alone, such as "
        ":9464, answers this machine only; 0.0.0.0:9464 answers everybody, without TLS and without a password.",
        parse=parsers.listen_address,
        default=_MONITORING_DEFAULTS.metrics_listen,
        metavar="HOST:PORT",
    ),
    Option(
        "metrics-tables",
        "Most tables that have metrics of their own: halted ones first, then waiting ones, then those with most "
        "rows. The others are summed up.",
        parse=parsers.integer(low=0, high=10_000),
        default=_MONITORING_DEFAULTS.metrics_tables,
        metavar="N",
    ),
    Option(
        "metrics-textfile",
        "File to write the metrics to, every 15 s and at the end of the run, for the textfile collector of "
        "node_exporter: its name ends in .prom, and its folder must exist.",
        parse=parsers.path,
        default=_MONITORING_DEFAULTS.metrics_textfile,
        metavar="FILE",
    ),
    Option(
        "ready-lag",
        "Lag of the checkpoint of all tables beyond which /readyz answers 503.",
        parse=parsers.duration(),
        default=_MONITORING_DEFAULTS.ready_lag,
        shown_default="any lag",
        metavar="DURATION",
    ),
)

_PROGRAM = (
    switch("once", "Run one round, up to the bucket's checkpoint, and end."),
    Option(
        "until",
        "Apply changes up to this commit-ts, inclusive, and end: a TSO, or a time with its zone, such as "
        "2026-11-23T10:00:00Z. A later run without it goes on from there.",
        parse=parsers.instant,
        default=0,
        shown_default="none",
        toml="",
        metavar="TSO|TIME",
    ),
    Option(
        "max-files",
        "With --once: end the round early, between two steps, once it has read this many data files. One table's part of a step "
        "is never divided, so it may read more.",
        parse=parsers.integer(low=0, high=1_000_000_000),
        default=0,
        shown_default="no limit",
        metavar="N",
    ),
    Option(
        "max-seconds",
        "With --once: end the round early, between two steps, once it has lasted this long, such as 90s or 1h. A step that runs is finished.",
        parse=parsers.duration(),
        default=0.0,
        shown_default="no limit",
        metavar="DURATION",
    ),
    Option(
        "log-level",
        "Lowest level that is logged; debug adds tracebacks.",
        parse=parsers.choice("debug", "info", "warn", "warning", "error", "fatal"),
        default="info",
        metavar="debug|info|warn|error",
    ),
    Option(
        "log-file",
        "File to log to; other programs may rotate it.",
        parse=parsers.path,
        shown_default="standard error",
        metavar="FILE",
    ),
    Option(
        "log-format",
        "One line per event: logfmt, `time=… level=… event=… key=value …`, or a JSON object.",
        parse=parsers.choice("text", "json"),
        default="text",
        metavar="text|json",
    ),
    Option(
        "on-halt",
        "Command to run, without a shell and with a JSON document on standard input, when a table halts or goes on, "
        "at a take-over, and when the program fails.",
        parse=parsers.command,
        default=(),
        shown_default="none",
        metavar="COMMAND",
    ),
    switch("no-progress", "No progress bar on a terminal."),
    switch("enable-profiling", "Accepted for compatibility with the reference consumer; it opens no profiling port."),
)

_GROUPS = {
    "what is copied": _WHAT,
    "which tables, and under which names": _SELECTING,
    "the copy before the changes": _COPY,
    "how TiCDC wrote the files": FORMAT,
    "the target": _TARGET,
    "pace and patience": _PACE,
    "Spark": _SPARK,
    "monitoring": _MONITORING,
    "the program": _PROGRAM,
}
GROUPS = tuple(_GROUPS)
OPTIONS = tuple(replace(option, group=group) for group, options in _GROUPS.items() for option in options)
BY_KEYWORD: dict[str, Option] = {keyword: option for option in OPTIONS for keyword in option.keywords}
BY_ENVIRONMENT: dict[str, Option] = {option.environment: option for option in OPTIONS}
