"""The settings as frozen records, without secrets; pickled, they may travel to executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from storage_consumer.config.uris import credential_parts, signatures
from storage_consumer.telemetry import tso_time

Protocol = Literal["csv", "canal-json", "dump-sql", "dump-csv"]
FileFormat = Literal["sql", "csv", "parquet"]
"""Of an export's data files; Parquet is read as Dumpling's default CSV."""
"""How rows are written: TiCDC's two protocols, and Dumpling's or mydumper's two forms."""
DateSeparator = Literal["none", "year", "month", "day"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How TiCDC wrote CSV; the defaults are TiCDC's (format sheet 4.1)."""

    terminator: str = "\r\n"
    """What ends a row; a message of canal-json too."""
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    binary_encoding_method: Literal["base64", "hex", ""] = "base64"
    """Empty if neither given nor shown by files; a table then halts at its first binary value."""
    output_old_value: bool = False
    """Whether ``is-update`` follows the commit-ts, and an update is a D row and an I row."""
    output_handle_key: bool = False
    """Whether a handle key precedes the values; only the classic architecture writes it."""
    output_field_header: bool = False
    """Whether each file begins with a line of field names."""


Compression = Literal["", "gzip", "snappy", "zstd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """How Dumpling or mydumper wrote an export, by default Dumpling; files show the first two."""

    file_format: FileFormat = "sql"
    compression: Compression = ""
    escape_backslash: bool = True
    """Whether backslashes escape in strings; else quotes double, as NO_BACKSLASH_ESCAPES reads."""
    separator: str = ","
    """What separates the fields of a CSV file (``--csv-separator``)."""
    delimiter: str = '"'
    """What is around a text in a CSV file (``--csv-delimiter``); empty: nothing is."""
    null: str = "\\N"
    """What stands for NULL in a CSV file (``--csv-null-value``)."""
    header: bool = True
    """Whether a CSV file begins with the names of the columns; not so after ``--no-header``."""
    terminator: str = "\r\n"
    """What ends a row of a CSV file (``--csv-line-terminator``)."""
    binary: Literal["raw", "hex", "base64"] = "raw"
    """Bytes in CSV: as they are, or as ``--csv-output-dialect`` snowflake, redshift or bigquery."""
    zero_dates: bool = True
    """Whether there may be dates such as 0000-00-00, which Parquet has as NULL."""
    time_zone: str = ""
    """Zone of TIMESTAMPs, as SQL files' heads say if they do (``SET TIME_ZONE``); empty: any."""
    bucket_time_zone: str = "UTC"
    """`Upstream.time_zone` of the bucket that follows: the target's session is in it, or in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelector:
    """One ``[[sink.column-selectors]]`` of the changefeed: the columns in rows of given tables."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter, such as ``shop.*`` and ``!shop.items``."""
    columns: tuple[str, ...]
    """Patterns of column names, such as ``*`` and ``!secret``; the last one that fits decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Changes that TiCDC leaves out when it writes."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter for the tables."""
    what: str
    """Which changes, and where that is set: for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The bucket, and how TiCDC was configured to write it."""

    scheme: Literal["file", "s3", "gcs", "azure"]
    root: str
    """``/dir`` for file, else ``bucket/prefix``; no slash at the end."""
    endpoint: str = ""
    """The server's URL; empty for the cloud's own."""
    region: str = ""
    force_path_style: bool = True
    account_name: str = ""
    """Storage account of Azure; empty: the environment provides it."""
    role_arn: str = ""
    """The role of AWS to read with, assumed by the credentials that are given or found; empty:
    those themselves.
    """
    external_id: str = ""
    """What that role's owner asks for besides; may be empty."""
    protocol: Protocol
    csv: CsvOptions = field(default_factory=CsvOptions)
    enable_tidb_extension: bool = False
    dump: DumpOptions = field(default_factory=DumpOptions)
    """How an export was written, if this is one."""
    date_separator: DateSeparator | None = None
    """None if it was not given: the paths then show it."""
    partition_separator: bool | None = None
    """None likewise."""
    time_zone: str = "UTC"
    """Zone of TiCDC's TIMESTAMP values: IANA name or ``+HH:MM``; empty if not given."""
    allow_missing_commit_ts: bool = False
    """Whether to take files whose rows carry no commit-ts, with the weaker promise for them."""
    column_selectors: tuple[ColumnSelector, ...] = ()
    """Selectors in the changefeed's order; the first one whose matcher fits a table applies."""
    headerless_selectors: str = ""
    """The name of selectors to read CSV without header by; see `table_filter.vouching`."""
    left_out: tuple[LeftOut, ...] = ()
    """Changes of rows, and statements that remove rows, that TiCDC leaves out."""
    file_expiration_days: int = 0
    """Days after which TiCDC deletes files, read or not; 0: never, or not given."""
    skip_commit_ts: tuple[tuple[str, int], ...] = ()
    """Transactions to leave out: a rule of the table filter, or none, and a commit-ts."""
    case_sensitive: bool = False
    """The changefeed's ``case-sensitive``: whether matchers distinguish upper and lower case."""

    @property
    def has_commit_ts(self) -> bool:
        """Whether every row carries its commit-ts, or has the clock of its load in that place."""
        if self.protocol in ("dump-sql", "dump-csv"):
            return True
        return self.csv.include_commit_ts if self.protocol == "csv" else self.enable_tidb_extension

    @property
    def tells_time(self) -> bool:
        """Whether every row has a commit time, if only to the millisecond, as canal-json does."""
        return self.has_commit_ts or self.protocol != "csv"

    @property
    def identity(self) -> str:
        """The bucket as the state remembers it: scheme and root, no credentials, no options."""
        return f"{self.scheme}://{self.root}"


SSL_MODES = ("disabled", "preferred", "required", "verify-ca", "verify-identity")
"""Levels of TLS to the target by MySQL's names, each stricter than the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """The target database server."""

    host: str = "127.0.0.1"
    port: int = 3306
    unix_socket: str = ""
    user: str = "root"
    ssl: bool = False
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_ca_text: str = field(default="", compare=False, repr=False)
    """Content of `ssl_ca` for machines that lack it; empty: the file is read each time."""
    ssl_mode: str = ""
    """One of `SSL_MODES` as given; empty: see `tls`."""
    allow_unverified_server: bool = False
    """Whether to send the password to any server that answers, if nothing verifies its identity."""
    state_schema: str = "storage_consumer"
    time_zone: str = "UTC"
    """The writer's zone, which literals in DDL are in; the same as `Upstream.time_zone`."""
    connect_timeout: int = 10
    """Timeout of a connection attempt, in seconds."""
    given_uri: str = field(default="", compare=False)
    """The URI as given, secrets masked, for commands in messages; empty if none was given."""
    password_file: str = field(default="", compare=False)
    """File with the password, for commands in messages; empty if it came from elsewhere."""
    password_in: tuple[str, ...] = field(default=(), compare=False)
    """Settings file whose URI has the password, for commands in messages; none: elsewhere."""
    ddl_lock_wait: int = 20
    """Seconds for which one attempt of a DDL waits for locks that others hold on its tables."""

    @property
    def tls(self) -> str:
        """One of `SSL_MODES`: the one given, else the strictest if TLS was asked for."""
        return self.ssl_mode or ("verify-identity" if self.ssl else "preferred")

    @property
    def address(self) -> str:
        """Where the server is, for messages."""
        return self.unix_socket or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server and its password."""

    settings: Downstream
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How the program runs; ``[consumer]`` in the TOML file."""

    flush_interval: float = 2.0
    """Seconds between two polls of the bucket (the reference consumer's name)."""
    ddl_at_checkpoint_wait: float = 30.0
    """Seconds of an unmoved storage checkpoint before a DDL at exactly that ts runs."""
    gap_timeout: float = 60.0
    """Seconds to wait for a missing file number or schema file before its table halts."""
    full_listing_interval: float = 600.0
    """Seconds between full listings; others list only directories that can still grow."""
    lease_ttl: float = 30.0
    """Seconds without renewal after which another process may take over."""
    standby: bool | None = None
    """Whether to wait while another process is the writer; None: not for a single round."""
    retry_limit: float = 300.0
    """Seconds of retries after which the run ends if a storage or target does not answer."""
    ddl_patience: float = 24 * 3600.0
    """Seconds to wait for a DDL that lost its connection while the target still runs it."""
    spark_master: str = ""
    """Spark master URL; empty: the one of spark-submit, else ``local[*]``."""
    partitions: int = 0
    """Write partitions of a round's Spark job; 0: derived from bytes and cores."""
    worker_count: int = 16
    """Most parallel connections that write rows, over all executors; TiCDC's name and default."""
    rows_per_second: int = 0
    """Most rows that all tasks together write or delete per second; 0: any number."""
    local_infile: bool = True
    """Whether LOAD DATA LOCAL may be used if the server allows it."""
    quarantine: tuple[str, ...] = ()
    """Table filter rules: tables whose refused rows go into the quarantine; empty: none."""
    quarantine_limit: int = 100
    """Most quarantined rows of one table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a run, or a round, ends before everything is done; 0 stands for no limit."""

    until: int = 0
    """Commit-ts up to which (inclusive) changes are applied; then the run ends."""
    max_files: int = 0
    """Data files after which a round begins no other job."""
    max_seconds: float = 0.0
    """Seconds after which a round begins no other step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitoring:
    """What the program shows of itself while it runs."""

    metrics_listen: str = ""
    """``host:port`` of the HTTP server; empty: there is none."""
    metrics_tables: int = 100
    """Most tables that have series of their own."""
    metrics_textfile: str = ""
    """File that the metrics are written to; empty: none."""
    ready_lag: float | None = None
    """Most seconds that all tables' checkpoint may lag in a ready process; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """One ``[[consumer.filter.event-filters]]``: statements not to run, for matching tables."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter."""
    ignore_event: tuple[str, ...] = ()
    """Kinds of statements, such as ``drop table`` and ``all ddl``."""
    ignore_sql: tuple[str, ...] = ()
    """Regular expressions, case-insensitive, for any part of the statement's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One ``[[consumer.routes]]``: the target names of tables that the matcher includes."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter, for the names in the bucket."""
    target_schema: str = ""
    """May contain ``{schema}`` and ``{table}``; empty: as in the bucket."""
    target_table: str = ""
    """Likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """Which tables of the bucket are taken, and under which names."""

    rules: tuple[str, ...] = ()
    """Rules of TiCDC's table filter; empty: every table."""
    event_filters: tuple[EventFilter, ...] = ()
    routes: tuple[Route, ...] = ()
    """Routes in order; the first one whose matcher includes a table applies to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The copy before the changes, and where they begin; ``[consumer.load]`` in the TOML file."""

    start_ts: int = 0
    """The changefeed's start-ts: it writes exactly the changes after it; 0: not given."""
    dump: str = ""
    """URI of an export of the source, with how it was written, and without secrets; empty: none."""
    source_rules: tuple[str, ...] = ()
    """Rules of the changefeed's filter, for the export to leave out the same; empty: none."""
    source_keyless: bool = False
    """Whether the changefeed writes tables without a key too (force-replicate)."""
    no_copy: bool = False
    """Whether earlier tables that the target lacks may be made from their columns, without rows."""

    @property
    def assumed(self) -> str:
        """What is taken for granted of rows from before the bucket, unread; empty for nothing."""
        if not self.no_copy:
            return ""
        at = self.start_ts
        which = (
            f"up to start-ts {at} ({tso_time(at)})"
            if at
            else "from before the changefeed (--no-copy)"
        )
        return f"rows {which} are taken to be in the target, since no copy was given; `verify` shows whether they are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything the program needs to know, except the secrets."""

    upstream: Upstream
    downstream: Downstream
    tuning: Tuning = field(default_factory=Tuning)
    selecting: Selecting = field(default_factory=Selecting)
    limits: Limits = field(default_factory=Limits)
    monitoring: Monitoring = field(default_factory=Monitoring)
    loading: Loading = field(default_factory=Loading)
    given: tuple[str, ...] = field(default=(), compare=False)
    """Flags to give all this again but the target, without secrets, for messages' commands."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secrets:
    """What must never be printed, pickled or stored; its repr names only which are set."""

    password: str = ""
    access_key: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    gcs_credentials: str = ""
    """JSON text of a Google credentials file."""
    account_key: str = ""
    sas_token: str = ""
    encryption_key: str = ""
    """Azure's customer-provided key, with which objects are encrypted."""

    def texts(self) -> tuple[str, ...]:
        """Return every text that must not be shown, with a credentials file's secret parts."""
        # All fields, so that a secret that is added later is hidden without another line.
        texts = [getattr(self, name) for name in self.__slots__]
        texts += signatures(self.sas_token)
        if self.gcs_credentials:
            texts += credential_parts(self.gcs_credentials)
        return tuple(text for text in texts if text)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that are set."""
        return tuple(name for name in self.__slots__ if getattr(self, name))

    def __repr__(self) -> str:
        """Return names only."""
        return f"Secrets({', '.join(self.names)})"
