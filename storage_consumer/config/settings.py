"""The settings as frozen records. They hold no secret and pickle, so they may travel to executors; secrets are apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from storage_consumer.config.stores import credential_parts, signatures

Protocol = Literal["csv", "canal-json"]
DateSeparator = Literal["none", "year", "month", "day"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How TiCDC wrote CSV; the defaults are TiCDC's (format sheet 4.1)."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    include_commit_ts: bool = False
    binary_encoding: Literal["base64", "hex", ""] = "base64"
    """Empty: nobody said it, and no file has shown it; then a table halts at its first binary value."""
    output_old_value: bool = False
    """An ``is-update`` field follows the commit ts, and an update is a D row and an I row."""
    output_handle_key: bool = False
    """A field with the handle key stands before the values; of the classic architecture only."""
    output_field_header: bool = False
    """Each file begins with a line of field names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelector:
    """One ``[[sink.column-selectors]]`` of the changefeed: which columns the rows of which tables carry."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter, such as ``shop.*`` and ``!shop.items``."""
    columns: tuple[str, ...]
    """Patterns of column names, such as ``*`` and ``!secret``; the last one that fits a name decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """The bucket and how TiCDC was told to write it."""

    scheme: Literal["file", "s3", "gcs", "azure"]
    root: str
    """``/dir`` for file, else ``bucket/prefix``; no slash at the end."""
    endpoint: str = ""
    """The server's URL, or empty for the cloud's own."""
    region: str = ""
    force_path_style: bool = True
    account_name: str = ""
    """Storage account of Azure; empty: the environment tells."""
    protocol: Protocol
    terminator: str = "\r\n"
    csv: CsvOptions = field(default_factory=CsvOptions)
    enable_tidb_extension: bool = False
    date_separator: DateSeparator | None = None
    """None where it was not told: then the paths show it."""
    partition_separator: bool | None = None
    """Likewise."""
    time_zone: str = "UTC"
    """Zone in which TiCDC rendered TIMESTAMP values: IANA name or ``+HH:MM``; empty: nobody said it."""
    allow_missing_commit_ts: bool = False
    """Take files that do not say when their rows committed, with the weaker promise that goes with it."""
    column_selectors: tuple[ColumnSelector, ...] = ()
    """In the order of the changefeed's file; the first one whose matcher fits a table is the table's."""
    file_expiration_days: int = 0
    """After so many days TiCDC deletes files, read or not; 0: never, or nobody said it."""
    case_sensitive: bool = False
    """The changefeed's ``case-sensitive``: whether the matchers of column selectors tell upper from lower case."""

    @property
    def has_commit_ts(self) -> bool:
        """Whether every row says its commit ts."""
        return self.csv.include_commit_ts if self.protocol == "csv" else self.enable_tidb_extension

    @property
    def tells_time(self) -> bool:
        """Whether every row says when it committed, if only to the millisecond, as canal-json always does."""
        return self.has_commit_ts or self.protocol != "csv"

    @property
    def identity(self) -> str:
        """The bucket as the state remembers it: scheme and root, no credentials, no options."""
        return f"{self.scheme}://{self.root}"


SSL_MODES = ("disabled", "preferred", "required", "verify-ca", "verify-identity")
"""How far TLS to the target goes, as MySQL's own programs name it; each does more than the one before."""


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
    """What the file `ssl_ca` holds, for machines that lack it; empty: the file counts, as it is at each connection."""
    ssl_mode: str = ""
    """One of `SSL_MODES` as it was given; empty: see `tls`."""
    allow_unverified_server: bool = False
    """Tell the password to whoever answers, where nothing verifies who that is."""
    state_schema: str = "storage_consumer"
    time_zone: str = "UTC"
    """The writer's zone, the same as `Upstream.time_zone`, in which literals of DDL are meant."""
    connect_timeout: int = 10
    """Seconds."""
    given_uri: str = field(default="", compare=False)
    """The URI as it was given, secrets masked, for commands in messages; empty where none was."""
    password_file: str = field(default="", compare=False)
    """Where the password was read from, for the same; empty where it came from elsewhere."""
    ddl_lock_wait: int = 20
    """Seconds for which one attempt of a DDL waits for locks that others hold on its tables."""

    @property
    def tls(self) -> str:
        """One of `SSL_MODES`: the one given, else the strictest where TLS was asked for."""
        return self.ssl_mode or ("verify-identity" if self.ssl else "preferred")

    @property
    def address(self) -> str:
        """Where the server is, for messages."""
        return self.unix_socket or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How the program runs; ``[consumer]`` in the TOML file."""

    flush_interval: float = 2.0
    """Seconds between two polls of the bucket (the reference consumer's name)."""
    ddl_at_checkpoint_wait: float = 30.0
    """Seconds that the storage checkpoint must stand still before a DDL at exactly that ts runs."""
    gap_timeout: float = 60.0
    """Seconds that a missing file number or schema file is waited for before its table halts."""
    full_listing_interval: float = 600.0
    """Seconds between two listings of everything; in between only directories that can still grow are listed."""
    lease_ttl: float = 30.0
    """Seconds without renewal after which another process may take over."""
    standby: bool | None = None
    """Whether to wait for as long as another process is the writer; None: yes, but not for a single round."""
    retry_limit: float = 300.0
    """Seconds for which a storage or target that does not answer is tried again before the run ends."""
    ddl_patience: float = 24 * 3600.0
    """Seconds for which a DDL that lost its connection is waited for while the target still runs it."""
    spark_master: str = ""
    """Spark master URL; empty: what spark-submit says, else ``local[*]``."""
    partitions: int = 0
    """Write partitions of a round's Spark job; 0: from bytes and cores."""
    worker_count: int = 16
    """Most connections by which rows are written at once, over all executors; TiCDC's name and default."""
    local_infile: bool = True
    """Whether LOAD DATA LOCAL may be used where the server allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """One ``[[consumer.filter.event-filters]]``: statements that are not run, of the tables that the matcher takes in."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter."""
    ignore_event: tuple[str, ...] = ()
    """Kinds of statements, such as ``drop table`` and ``all ddl``."""
    ignore_sql: tuple[str, ...] = ()
    """Regular expressions, without case, for any part of the statement's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One ``[[consumer.routes]]``: under which names the tables that the matcher takes in stand in the target."""

    matcher: tuple[str, ...]
    """Rules of TiCDC's table filter, for the names in the bucket."""
    target_schema: str = ""
    """May hold ``{schema}`` and ``{table}``; empty: as in the bucket."""
    target_table: str = ""
    """Likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selecting:
    """Which tables of the bucket are taken, and under which names."""

    rules: tuple[str, ...] = ()
    """Rules of TiCDC's table filter; empty: every table."""
    event_filters: tuple[EventFilter, ...] = ()
    routes: tuple[Route, ...] = ()
    """The first one whose matcher takes a table in is the table's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything the program needs to know, but for the secrets."""

    upstream: Upstream
    downstream: Downstream
    tuning: Tuning = field(default_factory=Tuning)
    selecting: Selecting = field(default_factory=Selecting)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Secrets:
    """What must never be printed, pickled into a job or stored. Its repr says only which are set."""

    password: str = ""
    access_key: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    gcs_credentials: str = ""
    """JSON text of a Google credentials file."""
    account_key: str = ""
    sas_token: str = ""
    encryption_key: str = ""
    """Of Azure, where the customer keeps the key that objects are encrypted with."""

    def texts(self) -> tuple[str, ...]:
        """Every text that must not be shown; of a credentials file each of its secret parts."""
        texts = [getattr(self, name) for name in self.__slots__]
        texts += signatures(self.sas_token)
        if self.gcs_credentials:
            texts += credential_parts(self.gcs_credentials)
        return tuple(text for text in texts if text)

    def __repr__(self) -> str:
        """Names only."""
        return f"Secrets({', '.join(name for name in self.__slots__ if getattr(self, name))})"
