"""The one table of options: flags, keywords, types, environment, TOML, URIs, help and pages.

Each field of `Options` is an option: its name is the keyword, its type what a keyword may be, and
the annotations say the rest: a text is the help, a mapping has fields of `Option`. A field without
help is another name of the one before it. A default that stands in a record of the settings under
the same name is not repeated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from storage_consumer.config import parsers, table_filter
from storage_consumer.config.parsers import Parser
from storage_consumer.config.settings import (
    SSL_MODES,
    CsvOptions,
    Downstream,
    Limits,
    Loading,
    Monitoring,
    Tuning,
    Upstream,
)

ENVIRONMENT_PREFIX = "STORAGE_CONSUMER_"
OWN_TABLE = "consumer"
"""Our table in the TOML file; everything beside it is TiCDC's."""

PRECEDENCE = (
    "flag or keyword, then URI parameter, then environment variable, then TOML file, then default"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, under all its names."""

    keyword: str
    """The name as a keyword of `Consumer`."""
    help: str
    """One or two sentences: what the value means, with its unit."""
    group: str
    """Its heading."""
    parse: Parser = parsers.text
    default: object = ""
    """The value (already parsed) if none is given."""
    shown_default: str = ""
    """How help shows the default, if the value itself says too little."""
    metavar: str = "TEXT"
    """Words in small letters, with | between them, are all that may be given; see `words_of`."""
    switch: bool = False
    """Whether the flag may come without a value, meaning true."""
    repeatable: bool = False
    """Whether the flag may be given several times; the values are collected in a list."""
    aliases: tuple[str, ...] = ()
    """Other names of the flag."""
    toml: str | None = None
    """Dotted key in TOML; None: the flag's name under ``[consumer]``; empty: not in the file."""
    uri: tuple[Literal["upstream", "downstream"], str] | None = None
    """The URI parameter that sets the same option."""
    flag: bool = True
    """Whether it is a flag too; a secret is not, since other users can see command lines."""
    hint: str = ""
    """Where a value is found, for the message about a wrong one."""
    escapes: bool = False
    """Whether ``\\t``, ``\\r``, ``\\n`` and ``\\xNN`` are escapes, but not in TOML, with its own.
    """

    @property
    def name(self) -> str:
        """The flag without leading dashes: ``flush-interval``."""
        return self.keyword.replace("_", "-")

    @property
    def environment(self) -> str:
        """The environment variable."""
        return ENVIRONMENT_PREFIX + self.keyword.upper()

    @property
    def toml_key(self) -> str:
        """The dotted key in the TOML file, or an empty text."""
        return f"{OWN_TABLE}.{self.name}" if self.toml is None else self.toml

    @property
    def default_text(self) -> str:
        """The default as help and the reference show it."""
        if self.shown_default:
            return self.shown_default
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.default in ("", None, ()):
            return "none"
        return f"{self.default:g}s" if self.metavar == "DURATION" else str(self.default)

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keyword and its aliases."""
        return (self.keyword, *(alias.replace("-", "_") for alias in self.aliases))


def words_of(metavar: str) -> tuple[str, ...]:
    """Return the values to choose from, or none for any; capitals stand for values."""
    return tuple(metavar.split("|")) if "|" in metavar and metavar.islower() else ()


_INFERRED = {"shown_default": "inferred from the bucket"}
Document = str | Path | Mapping[str, object]
Text = str | None
Switch = Annotated[
    bool | str | None,
    {"parse": parsers.boolean, "switch": True, "default": False, "metavar": "BOOL"},
]
Number = Annotated[int | str | None, {"metavar": "N"}]
Seconds = Annotated[float | str | None, {"parse": parsers.duration(), "metavar": "DURATION"}]
File = Annotated[str | Path | None, {"parse": parsers.path, "metavar": "FILE"}]
Address = Annotated[str | None, {"metavar": "URI"}]
Zone = Annotated[str | None, {"parse": parsers.time_zone, "metavar": "ZONE"}]
Instant = Annotated[int | str | None, {"parse": parsers.instant, "metavar": "TSO|TIME"}]
Rules = Annotated[
    str | Sequence[str] | None,
    {"parse": table_filter.rules, "metavar": "RULE", "repeatable": True, "default": ()},
]
Tables = Annotated[object, {"metavar": "TABLE", "repeatable": True, "default": ()}]
Signs = Annotated[str | None, {"parse": parsers.raw_text, "escapes": True}, _INFERRED]


class Options(TypedDict, total=False):
    """What `Consumer` takes; None is not given, a text means the same as on the command line."""

    upstream_uri: Annotated[
        Address,
        "The bucket: file:///dir, s3://bucket/prefix, gcs://bucket/prefix or azure://container/prefix. TiCDC's --sink-uri fits unchanged, parameters included.",
        {"group": "what is copied"},
    ]
    sink_uri: Text
    downstream_uri: Annotated[
        Address,
        "The target: mysql://user@host:3306/, also tidb:// and mariadb://, and +ssl of each.",
    ]
    config: Annotated[
        Document | Sequence[Document] | None,
        "TOML file: the changefeed's own, unchanged, and/or one with our [consumer] table. It may also be what `cdc cli changefeed "
        "create` or `query` printed. May be given several times; "
        "a later file overrides an earlier one. (The environment variable separates several files by ':'.)",
        {
            "metavar": "FILE",
            "toml": "",
            "parse": parsers.config_paths,
            "default": None,
            "repeatable": True,
        },
    ]
    filter: Annotated[
        Rules,
        "Which tables to replicate: a rule of TiCDC's table filter, such as 'shop.*' or '!shop.items'. May be "
        "given several times; the last one that matches a table decides. (The environment variable takes one per "
        "line, or a TOML array.)",
        {"toml": "consumer.filter.rules", "shown_default": "every table"},
        {"group": "which tables, and under which names"},
    ]
    event_filter: Annotated[
        Tables,
        "Which statements not to run, as an inline table of TOML with `matcher` and `ignore-event` or "
        "`ignore-sql`: "
        '\'{matcher = ["shop.*"], ignore-event = ["drop table"]}\'. May be given several times.',
        {"parse": table_filter.event_filters, "toml": "consumer.filter.event-filters"},
    ]
    route: Annotated[
        Tables,
        "What tables are called in the target, as an inline table of TOML with `matcher` and `target-schema` or "
        "`target-table`: "
        '\'{matcher = ["shop.*"], target-schema = "copy", target-table = "{table}_old"}\'. May be given several times; the first '
        "one that matches a table applies.",
        {"parse": table_filter.routes, "toml": "consumer.routes"},
    ]
    skip_commit_ts: Annotated[
        object,
        "Transactions whose rows are left out: a commit-ts as `changes` prints it, for every table, "
        "or a rule like those of --filter, a colon and the commit-ts: "
        "'shop.orders:470607624255045632'. Several are separated by commas; may be given several "
        "times. Statements (DDL) are not concerned.",
        {"parse": table_filter.skipped, "metavar": "[RULE:]TSO", "repeatable": True, "default": ()},
    ]
    start_ts: Annotated[
        Instant,
        "The changefeed's start-ts: a TSO, or a time with its zone, such as 2026-11-23T10:00:00Z. The bucket "
        "holds the changes after it, and none from before: a new feed says so, since a source that had rows by then needs a copy too. "
        "Given by hand without --dump it says --no-copy as well.",
        {
            "toml": "consumer.load.start-ts",
            "shown_default": "what the changefeed's JSON in --config says, else unknown",
        },
        {"group": "the copy before the changes"},
    ]
    dump: Annotated[
        Text,
        "An export of the source by Dumpling or mydumper, which a new feed loads before it applies changes: file:///dir, s3://bucket/prefix, "
        "gcs:// or azure://, read with the bucket's credentials. Options of Dumpling that change what its files mean are its parameters: "
        "'s3://bucket/full?escape-backslash=false&csv-separator=|'. A feed that has begun keeps the copy that it began with.",
        {"toml": "consumer.load.dump", "metavar": "URI"},
        {"shown_default": "none: the target has what the source had at start-ts"},
    ]
    dump_tz: Annotated[
        Zone,
        "Time zone of the TIMESTAMP values in the export: that of the server's `time_zone` when Dumpling ran, if it was given none.",
        {
            "toml": "consumer.load.dump-tz",
            "shown_default": "what its SQL files say: needed for TIMESTAMP columns else",
        },
    ]
    source: Annotated[
        Address,
        "The TiDB that the changefeed reads, as tidb://USER@HOST:4000/. A new feed exports all of its tables as of one TSO into a new folder below "
        "--dump, or beside the bucket's prefix, and begins with that. It takes SELECT and SHOW VIEW on the source, and no Dumpling; nothing is locked there. "
        "With --config of the changefeed, its filter counts.",
        {"toml": "consumer.load.source", "shown_default": "none: nothing is exported"},
    ]
    source_password_file: Annotated[
        File,
        "File that holds the source's password (one newline at its end is ignored).",
        {"toml": "consumer.load.source-password-file", "parse": parsers.named_path},
    ]
    source_password: Annotated[
        Text,
        "The source's password. There is no flag, because other users can read a command line.",
        {"flag": False, "toml": ""},
    ]
    no_copy: Annotated[
        Switch,
        "Begin without a copy although the source had tables before the changefeed began: those that the target lacks are created from "
        "their columns, without the rows from before and without keys but the primary one. Without it such a feed does not begin. "
        "Leave it in the command line: such a table may show first with a change of much later.",
        {"toml": "consumer.load.no-copy"},
    ]
    protocol: Annotated[
        Text,
        "Format of the data files.",
        {
            "metavar": "csv|canal-json",
            "default": "csv",
            "toml": "sink.protocol",
            "uri": ("upstream", "protocol"),
        },
        _INFERRED,
        {"group": "how TiCDC wrote the files"},
    ]
    terminator: Annotated[
        Signs, r"What ends a row, such as '\r\n' or '\n'.", {"toml": "sink.terminator"}
    ]
    delimiter: Annotated[
        Signs, r"Separator of CSV fields, such as , or '\t'.", {"toml": "sink.csv.delimiter"}
    ]
    quote: Annotated[
        Signs, "Quote character of CSV strings; '' for none.", {"toml": "sink.csv.quote"}
    ]
    null: Annotated[
        Signs, "How NULL is written in CSV.", {"toml": "sink.csv.null", "escapes": False}
    ]
    include_commit_ts: Annotated[
        Switch,
        "Whether CSV rows carry their commit-ts. They should; this is the changefeed's `[sink.csv] include-commit-ts`.",
        {"toml": "sink.csv.include-commit-ts"},
        _INFERRED,
    ]
    binary_encoding_method: Annotated[
        Text,
        "How the bytes of binary columns are encoded in CSV.",
        {"metavar": "base64|hex", "toml": "sink.csv.binary-encoding-method"},
        _INFERRED,
    ]
    output_old_value: Annotated[
        Switch,
        "Whether CSV has two rows for an update: the old values and the new ones.",
        {"toml": "sink.csv.output-old-value"},
        _INFERRED,
    ]
    output_handle_key: Annotated[
        Switch,
        "Whether a field with the row's key precedes the values of a CSV row.",
        {"toml": "sink.csv.output-handle-key"},
        _INFERRED,
    ]
    output_field_header: Annotated[
        Switch,
        "Whether each CSV file begins with a line of field names.",
        {"toml": "sink.csv.output-field-header"},
        _INFERRED,
    ]
    enable_tidb_extension: Annotated[
        Switch,
        "Whether canal-json messages carry `_tidb` with their commit-ts. They should; TiCDC's sink URI parameter.",
        {
            "toml": "sink.kafka-config.codec-config.enable-tidb-extension",
            "uri": ("upstream", "enable-tidb-extension"),
        },
        _INFERRED,
    ]
    allow_missing_commit_ts: Annotated[
        Switch,
        "Accept files whose rows do not say when they committed, with a weaker promise: between rounds the target "
        "may run ahead "
        "of its checkpoint, and tables without a key halt.",
    ]
    headerless_selectors: Annotated[
        Text,
        "Vouch that all CSV rows without a header line that lack columns, and are still to be read, were written under the "
        "`[[sink.column-selectors]]` that are given. The error of a halted table has the name of these selectors; with others it no "
        "longer counts.",
        {"parse": parsers.raw_text, "metavar": "NAME"},
        {
            "shown_default": "none: a row that lacks columns halts its table unless its file names them"
        },
    ]
    date_separator: Annotated[
        Text,
        "Which date directories the bucket has.",
        {
            "metavar": "none|year|month|day",
            "toml": "sink.date-separator",
            "uri": ("upstream", "date-separator"),
        },
        _INFERRED,
    ]
    enable_partition_separator: Annotated[
        Switch,
        "Whether each partition of a partitioned table has its own directory.",
        {
            "toml": "sink.enable-partition-separator",
            "uri": ("upstream", "enable-partition-separator"),
            "default": None,
        },
        _INFERRED,
    ]
    file_index_width: Annotated[
        Number,
        "Accepted for compatibility with the reference consumer; file numbers of any width are read.",
        {
            "parse": parsers.integer(low=0, high=1000),
            "metavar": "DIGITS",
            "default": 0,
            "shown_default": "any",
        },
        {"toml": "sink.file-index-digit", "uri": ("upstream", "file-index-digit")},
    ]
    tz: Annotated[
        Zone,
        "Time zone of the TiCDC servers, in which TIMESTAMP values are written: UTC, Asia/Shanghai, +08:00, or System "
        "for this host's zone. Nothing in the bucket shows it, and a wrong one shifts every TIMESTAMP.",
        {"shown_default": "none: needed for TIMESTAMP columns", "uri": ("downstream", "time-zone")},
    ]
    downstream_password_file: Annotated[
        File,
        "File that holds the target's password (one newline at its end is ignored).",
        {"group": "the target", "parse": parsers.named_path},
    ]
    downstream_password: Annotated[
        Text,
        "The target's password. There is no flag, because other users can read a command line.",
        {"flag": False, "toml": "", "parse": parsers.raw_text},
    ]
    state_schema: Annotated[
        Text,
        "Schema in the target that holds the consumer's own tables: lease, checkpoints, DDL journal.",
        {"parse": parsers.schema_name, "metavar": "NAME", "uri": ("downstream", "state-schema")},
    ]
    ssl_ca: Annotated[
        File,
        "CA certificate that must have signed the target's certificate (default: those that this machine trusts); "
        "enables TLS.",
        {"uri": ("downstream", "ssl-ca")},
    ]
    ssl_cert: Annotated[
        File, "Client certificate for the target; enables TLS.", {"uri": ("downstream", "ssl-cert")}
    ]
    ssl_key: Annotated[
        File, "Private key of the client certificate.", {"uri": ("downstream", "ssl-key")}
    ]
    ssl_mode: Annotated[
        Text,
        "How strictly TLS is used, in the terms of MySQL's programs: disabled, preferred (where the server "
        "offers it; verifies nothing), "
        "required (verifies nothing), verify-ca, or verify-identity (CA and host name).",
        {"metavar": "|".join(SSL_MODES), "uri": ("downstream", "ssl-mode")},
        {"shown_default": "verify-identity with TLS, else preferred"},
    ]
    allow_unverified_server: Annotated[
        Switch,
        "Whether to send the password itself to a server that nothing verifies; otherwise it gets only the response "
        "to a challenge.",
    ]
    connect_timeout: Annotated[
        Seconds,
        "How long one attempt to connect to the target may take, from resolving its name to a session that is ready.",
        {"parse": parsers.whole_seconds, "uri": ("downstream", "timeout")},
    ]
    quarantine: Annotated[
        Rules,
        "Tables that go on without a row that the target refuses for what it holds, such as a value that is too long: the row is "
        "kept in the state, and the table is no longer equal until it is retried. A rule like those of --filter, such as 'shop.*' "
        "or '!shop.items'; may be given several times. Other tables halt at such a row.",
        {"shown_default": "no table"},
    ]
    quarantine_limit: Annotated[
        Number,
        "Most rows of one table in the quarantine; one more halts the table.",
        {"parse": parsers.integer(low=1, high=10_000)},
    ]
    local_infile: Annotated[
        Switch,
        "Whether to send rows with LOAD DATA LOCAL, from memory, if the server allows it; otherwise with statements.",
    ]
    flush_interval: Annotated[
        Seconds,
        "Time between two polls of the bucket.",
        {"parse": parsers.duration(low=0.1), "group": "pace and patience"},
    ]
    ddl_at_checkpoint_wait: Annotated[
        Seconds,
        "How long the bucket's checkpoint must stay unchanged before a DDL at exactly that ts is run.",
    ]
    ddl_lock_wait: Annotated[
        Seconds,
        "How long one attempt of a DDL waits for locks that others hold on its tables; then the log names them, "
        "and the DDL is tried again.",
        {"parse": parsers.whole_seconds},
    ]
    ddl_patience: Annotated[
        Seconds,
        "How long to wait for a DDL that lost its connection while the target still runs it.",
    ]
    gap_timeout: Annotated[
        Seconds,
        "How long to wait for a missing file before its table halts; the other tables go on.",
    ]
    full_listing_interval: Annotated[
        Seconds,
        "Time between two listings of the whole bucket; in between, finished directories are skipped.",
        {"parse": parsers.duration(low=1.0)},
    ]
    lease_ttl: Annotated[
        Seconds,
        "How long a silent owner keeps the target; then another process may take over.",
        {"parse": parsers.duration(low=3.0)},
    ]
    standby: Annotated[
        Switch,
        "Whether to wait as long as another process is the writer, and then take over. If false, the program "
        "exits with code 3 after lease-ttl.",
        {"shown_default": "true, with --once false"},
    ]
    retry_limit: Annotated[
        Seconds,
        "How long to retry a bucket or target that does not answer before the program exits with code 1.",
    ]
    rows_per_second: Annotated[
        Number,
        "Most rows that are written or deleted in the target per second, over all tasks and copies; 0: any number.",
        {"parse": parsers.integer(low=0, high=1_000_000_000)},
    ]
    spark_master: Annotated[
        Text,
        "Where the Spark job runs.",
        {"parse": parsers.spark_master, "metavar": "URL"},
        {"shown_default": "what spark-submit says, else local[*]", "group": "Spark"},
    ]
    partitions: Annotated[
        Number,
        "Write partitions of a round's Spark job; 0: derived from bytes and cores.",
        {"parse": parsers.integer(low=0, high=100_000)},
    ]
    worker_count: Annotated[
        Number,
        "Maximum number of connections that write rows concurrently, however many cores all executors have; as "
        "in TiCDC's MySQL sink.",
        {"parse": parsers.integer(low=1, high=10_000), "uri": ("downstream", "worker-count")},
    ]
    metrics_listen: Annotated[
        Text,
        "Where to answer over HTTP while the program runs: the status page (/), /metrics, /healthz and /readyz. A port alone, such as "
        ":9464, answers this machine only; 0.0.0.0:9464 answers everybody, without TLS and without a password.",
        {"parse": parsers.listen_address, "metavar": "HOST:PORT", "group": "monitoring"},
    ]
    metrics_tables: Annotated[
        Number,
        "Most tables that have metrics of their own: halted ones first, then waiting ones, then those with most "
        "rows. The others are summed up.",
        {"parse": parsers.integer(low=0, high=10_000)},
    ]
    metrics_textfile: Annotated[
        File,
        "File to write the metrics to, every 15 s and at the end of the run, for the textfile collector of "
        "node_exporter: its name ends in .prom, and its folder must exist.",
    ]
    ready_lag: Annotated[
        Seconds,
        "Lag of the checkpoint of all tables beyond which /readyz answers 503.",
        {"shown_default": "any lag"},
    ]
    once: Annotated[
        Switch, "Run one round, up to the bucket's checkpoint, and end.", {"group": "the program"}
    ]
    until: Annotated[
        Instant,
        "Apply changes up to this commit-ts, inclusive, and end: a TSO, or a time with its zone, such as "
        "2026-11-23T10:00:00Z. A later run without it goes on from there.",
        {"shown_default": "none", "toml": ""},
    ]
    max_files: Annotated[
        Number,
        "With --once: end the round early, between two steps, once it has read this many data files. One table's part of a step "
        "is never divided, so it may read more.",
        {"parse": parsers.integer(low=0, high=1_000_000_000), "shown_default": "no limit"},
    ]
    max_seconds: Annotated[
        Seconds,
        "With --once: end the round early, between two steps, once it has lasted this long, such as 90s or 1h. A step that runs is finished.",
        {"shown_default": "no limit"},
    ]
    log_level: Annotated[
        Text,
        "Lowest level that is logged; debug adds tracebacks.",
        {
            "parse": parsers.choice("debug", "info", "warn", "warning", "error", "fatal"),
            "default": "info",
            "metavar": "debug|info|warn|error",
        },
    ]
    log_file: Annotated[
        File, "File to log to; other programs may rotate it.", {"shown_default": "standard error"}
    ]
    log_format: Annotated[
        Text,
        "One line per event: logfmt, `time=… level=… event=… key=value …`, or a JSON object.",
        {"metavar": "text|json", "default": "text"},
    ]
    on_halt: Annotated[
        Text,
        "Command to run, without a shell and with a JSON document on standard input, when a table halts or goes on, "
        "at a take-over, and when the program fails.",
        # Repeatable so that a second one is seen, and refused.
        {"parse": parsers.command, "default": (), "metavar": "COMMAND", "repeatable": True},
    ]
    no_progress: Annotated[Switch, "No progress bar on a terminal."]
    enable_profiling: Annotated[
        Switch,
        "Accepted for compatibility with the reference consumer; it opens no profiling port.",
    ]


def _table() -> dict[str, Option]:
    """Return keyword → option, in the order of `Options`; aliases are keywords as well."""
    records = (Upstream, CsvOptions, Downstream, Tuning, Monitoring, Limits, Loading)
    defaults = {
        each.name: each.default
        for record in records
        for each in fields(record)
        if each.default is not MISSING
    }
    found: dict[str, dict[str, Any]] = {}
    group = ""
    for keyword, kind in Options.__annotations__.items():
        said = getattr(kind, "__metadata__", ())
        if not said:
            found[[*found][-1]]["aliases"] = (keyword.replace("_", "-"),)
            continue
        given: dict[str, Any] = {"keyword": keyword}
        for each in said:
            given |= {"help": each} if isinstance(each, str) else each
        given |= {"default": defaults[keyword]} if keyword in defaults else {}
        if words := words_of(given.get("metavar", "")):
            given.setdefault("parse", parsers.choice(*words))
        group = given.setdefault("group", group)
        found[keyword] = given
    options = [Option(**given) for given in found.values()]
    return {keyword: option for option in options for keyword in option.keywords}


BY_KEYWORD = _table()
OPTIONS = tuple(dict.fromkeys(BY_KEYWORD.values()))
GROUPS = tuple(dict.fromkeys(option.group for option in OPTIONS))
BY_ENVIRONMENT = {option.environment: option for option in OPTIONS}
