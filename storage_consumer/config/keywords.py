"""The keywords of `Consumer` with their types, for type checkers; a test keeps them equal with the table of options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

Document = str | Path | Mapping[str, object]


class Options(TypedDict, total=False):
    """What `Consumer` takes. None counts as not given; a text means what it means on the command line."""

    upstream_uri: str | None
    sink_uri: str | None
    downstream_uri: str | None
    config: Document | Sequence[Document] | None
    filter: str | Sequence[str] | None
    event_filter: object
    route: object
    start_ts: int | str | None
    dump: str | None
    dump_tz: str | None
    source: str | None
    source_password_file: str | Path | None
    source_password: str | None
    no_copy: bool | str | None
    protocol: str | None
    terminator: str | None
    delimiter: str | None
    quote: str | None
    null: str | None
    include_commit_ts: bool | str | None
    binary_encoding_method: str | None
    output_old_value: bool | str | None
    output_handle_key: bool | str | None
    output_field_header: bool | str | None
    enable_tidb_extension: bool | str | None
    allow_missing_commit_ts: bool | str | None
    headerless_selectors: str | None
    date_separator: str | None
    enable_partition_separator: bool | str | None
    file_index_width: int | str | None
    tz: str | None
    downstream_password_file: str | Path | None
    downstream_password: str | None
    state_schema: str | None
    ssl_ca: str | Path | None
    ssl_cert: str | Path | None
    ssl_key: str | Path | None
    ssl_mode: str | None
    allow_unverified_server: bool | str | None
    connect_timeout: float | str | None
    quarantine: str | Sequence[str] | None
    quarantine_limit: int | str | None
    local_infile: bool | str | None
    flush_interval: float | str | None
    ddl_at_checkpoint_wait: float | str | None
    ddl_lock_wait: float | str | None
    ddl_patience: float | str | None
    gap_timeout: float | str | None
    full_listing_interval: float | str | None
    lease_ttl: float | str | None
    standby: bool | str | None
    retry_limit: float | str | None
    spark_master: str | None
    partitions: int | str | None
    worker_count: int | str | None
    metrics_listen: str | None
    metrics_tables: int | str | None
    metrics_textfile: str | Path | None
    ready_lag: float | str | None
    once: bool | str | None
    until: int | str | None
    max_files: int | str | None
    max_seconds: float | str | None
    log_level: str | None
    log_file: str | Path | None
    log_format: str | None
    on_halt: str | None
    no_progress: bool | str | None
    enable_profiling: bool | str | None
