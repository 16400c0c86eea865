"""The session that our statements rely on: every server variable that could change what a statement does or returns.

A new connection inherits what an administrator made the default for all connections. What could cut a result short, refuse or weaken
a statement, or change what a text means, is set here, for our own connections only. The rest is inherited: what only affects speed,
memory, logs, physical layout or the binary log is the administrator's choice.

For most variables `DEFAULT` is no value to set: it means the administrator's default, not the server's own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Kind = Literal["mariadb", "mysql", "tidb"]
KINDS: tuple[Kind, ...] = ("mariadb", "mysql", "tidb")
_NOT_TIDB: tuple[Kind, ...] = ("mariadb", "mysql")
_UNLIMITED = "18446744073709551615"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One variable of a session, and what would go wrong without it."""

    name: str
    value: str
    """The value as SQL."""
    why: str
    servers: tuple[Kind, ...] = KINDS
    """Servers that get it; a version that does not know it goes without."""
    not_for_ddl: bool = False
    """Whether connections that run DDL have a value of their own."""
    needs_right: bool = False
    """Whether some server lets only privileged users set it; without the privilege it is inherited."""
    first: bool = False
    """Whether even the query for the server's variables may fail without it."""


def _of(*names: str, value: str, why: str, servers: tuple[Kind, ...] = KINDS) -> tuple[Setting, ...]:
    return tuple(Setting(name=name, value=value, why=why, servers=servers) for name in names)


# What a query returns.
_RESULTS = (
    Setting(name="sql_select_limit", value=_UNLIMITED, why="cuts every result, of the state and of information_schema too"),
    # the limit before the switch: setting the limit turns the switch off
    Setting(name="max_join_size", value=_UNLIMITED, why="refuses joins and reads that it takes for large", first=True),
    Setting(name="sql_big_selects", value="1", why="off: the same", first=True),
    Setting(name="sql_safe_updates", value="0", why="refuses UPDATE and DELETE without a key: the lease, keyless rows"),
    Setting(name="sql_auto_is_null", value="0", why="`IS NULL` then finds the row that was inserted last"),
    Setting(name="max_sort_length", value="1024", why="ORDER BY compares only so many bytes of a text"),
    Setting(name="system_versioning_asof", value="DEFAULT", why="SELECT then reads rows of the past", servers=("mariadb",)),
    Setting(name="wsrep_dirty_reads", value="0", why="a node without its cluster then answers with old rows", servers=("mariadb",)),
    Setting(name="use_secondary_engine", value="OFF", why="SELECT may be answered from a copy that lags", servers=("mysql",)),
    Setting(name="query_cache_type", value="0", why="results come from a cache", servers=_NOT_TIDB),
    Setting(name="tidb_snapshot", value="''", why="reads the past, and refuses writes", servers=("tidb",)),
    Setting(name="tidb_read_staleness", value="0", why="reads the past", servers=("tidb",)),
    Setting(name="tidb_enable_external_ts_read", value="OFF", why="reads the past", servers=("tidb",)),
    Setting(name="tidb_low_resolution_tso", value="OFF", why="reads may be 2 s old, and writes are refused", servers=("tidb",)),
    Setting(name="tidb_read_consistency", value="'strict'", why="weak: reads pass over locks", servers=("tidb",)),
    Setting(name="tidb_rc_write_check_ts", value="OFF", why="writes may judge by an older read", servers=("tidb",)),
    Setting(name="tidb_isolation_read_engines", value="'tikv,tiflash,tidb'", why="reads are refused where TiKV is not among them", servers=("tidb",)),
    Setting(name="tiflash_fastscan", value="OFF", why="TiFlash then answers with several versions of a row", servers=("tidb",)),
    Setting(name="tidb_enable_unsafe_substitute", value="OFF", why="expressions are replaced by generated columns of other types", servers=("tidb",)),
)  # fmt: skip
# What a write does, locks and commits.
_WRITES = (
    Setting(name="autocommit", value="1", why="off: every statement waits for a COMMIT that is not sent"),
    Setting(name="completion_type", value="0", why="COMMIT then begins another transaction, or ends the connection"),
    *_of("tx_isolation", "transaction_isolation", value="'READ-COMMITTED'", why="locks and reads as the fence expects them"),
    *_of("tx_read_only", "transaction_read_only", value="0", why="refuses every write"),
    Setting(name="unique_checks", value="1", why="off: InnoDB may take a key twice"),
    Setting(name="foreign_key_checks", value="0", why="tables are written apart from each other, and children may come first"),
    Setting(name="check_constraint_checks", value="1", why="off: rows are not checked, other than on the other servers", servers=("mariadb",), not_for_ddl=True),
    *_of("auto_increment_increment", "auto_increment_offset", value="1", why="numbers that a new column is filled with"),
    Setting(name="tidb_txn_mode", value="'pessimistic'", why="optimistic: FOR UPDATE locks nothing", servers=("tidb",)),
    Setting(name="tidb_disable_txn_auto_retry", value="ON", why="off: a lost optimistic transaction is repeated on other rows", servers=("tidb",)),
    *_of("tidb_constraint_check_in_place", "tidb_constraint_check_in_place_pessimistic", value="ON", why="keys are checked late, with another error", servers=("tidb",)),
    *_of("tidb_batch_insert", "tidb_batch_delete", "tidb_batch_commit", value="OFF", why="a statement commits in pieces", servers=("tidb",)),
    Setting(name="tidb_dml_batch_size", value="0", why="the size of these pieces", servers=("tidb",)),
    Setting(name="tidb_txn_entry_size_limit", value="125829120", why="refuses a row over 6 MiB; this is the most that it can be", servers=("tidb",)),
    Setting(name="tidb_dml_type", value="'standard'", why="bulk: a statement commits in a way of its own", servers=("tidb",)),
    Setting(name="tidb_guarantee_linearizability", value="ON", why="off: another connection may not see what was committed", servers=("tidb",)),
    *_of("tidb_skip_utf8_check", "tidb_skip_ascii_check", value="OFF", why="bytes that are no text are taken", servers=("tidb",)),
    Setting(name="allow_auto_random_explicit_insert", value="ON", why="rows carry the values of AUTO_RANDOM columns", servers=("tidb",)),
    Setting(name="binlog_format", value="IF(@@SESSION.binlog_format = 'STATEMENT', 'MIXED', @@SESSION.binlog_format)", why="STATEMENT refuses InnoDB's writes under READ COMMITTED", servers=_NOT_TIDB, needs_right=True),
)  # fmt: skip
# What the server reports: notes, warnings, errors, and the text of SHOW CREATE.
_REPORTS = (
    Setting(name="sql_notes", value="1", why="off: notes, such as of a value that was rounded, are not counted"),
    Setting(name="note_verbosity", value="'basic'", why="notes on how indexes are used would pass for refused values", servers=("mariadb",)),
    Setting(name="max_error_count", value="64", why="0: the texts of warnings are thrown away", needs_right=True),
    Setting(name="lc_messages", value="'en_US'", why="errors are told apart by their texts where the numbers do not do"),
    Setting(name="sql_quote_show_create", value="1", why="SHOW CREATE is compared"),
    *_of("show_create_table_skip_secondary_engine", "show_create_table_verbosity", "show_old_temporals", value="0", why="the same"),
    Setting(name="show_gipk_in_create_table_and_information_schema", value="1", why="off: a key that the target has does not show", servers=("mysql",)),
)  # fmt: skip
# What breaks off a statement or a connection.
_LIMITS = (
    Setting(name="max_execution_time", value="0", why="breaks statements off", servers=("mysql", "tidb"), first=True),
    Setting(name="max_statement_time", value="0", why="the same", servers=("mariadb",), first=True),
    *_of("idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout", "tidb_idle_transaction_timeout", value="0", why="ends the connection while rows are read for it"),
    *_of("wait_timeout", "interactive_timeout", value="28800", why="ends the connection between two statements"),
    *_of("net_read_timeout", "net_write_timeout", value="60", why="ends the connection while rows are sent"),
    Setting(name="lock_wait_timeout", value="86400", why="gives up immediately where another connection holds a table; for DDL --ddl-lock-wait says it", not_for_ddl=True),
    *_of("tmp_disk_table_size", value=_UNLIMITED, why="reads of information_schema fail as if the disk were full", servers=("mariadb",)),
    Setting(name="max_tmp_session_space_usage", value="0", why="refuses statements whose temporary tables grow", servers=("mariadb",)),
    Setting(name="max_session_mem_used", value="9223372036854775807", why="refuses statements", servers=("mariadb",), first=True),
    Setting(name="connection_memory_limit", value=_UNLIMITED, why="ends the connection", servers=("mysql",), needs_right=True),
    Setting(name="range_optimizer_max_mem_size", value="0", why="many keys in one statement raise a warning and read the whole table", servers=("mysql",)),
    Setting(name="tidb_opt_range_max_size", value="0", why="the same", servers=("tidb",)),
    Setting(name="tidb_mem_quota_query", value="IF(@@SESSION.tidb_mem_quota_query BETWEEN 0 AND 1073741824, 1073741824, @@SESSION.tidb_mem_quota_query)", why="breaks statements off; a larger one may be wanted for large windows", servers=("tidb",), first=True),
    Setting(name="tikv_client_read_timeout", value="0", why="every read is tried again without end", servers=("tidb",)),
)  # fmt: skip
# What an expression or a name in a statement means.
_MEANING = (
    Setting(name="div_precision_increment", value="4", why="digits of a division in a generated column"),
    Setting(name="default_week_format", value="0", why="WEEK() in a generated column"),
    Setting(name="block_encryption_mode", value="'aes-128-ecb'", why="AES_ENCRYPT() in a generated column"),
    Setting(name="lc_time_names", value="'en_US'", why="names of days and months in a generated column"),
    Setting(name="default_regex_flags", value="''", why="REGEXP in a generated column or a check", servers=("mariadb",)),
    Setting(name="old_mode", value="''", why="casts of TIME, and texts of warnings", servers=("mariadb",)),
    # where it is known, `utf8` means utf8mb4 without it
    Setting(name="old_mode", value="'UTF8_IS_UTF8MB3'", why="utf8 in a statement means three bytes, as at the source", servers=("mariadb",)),
    Setting(name="character_set_filesystem", value="binary", why="names of files in statements", needs_right=True),
    Setting(name="character_set_collations", value="'utf8mb4=utf8mb4_bin'", why="utf8mb4 without a collation means the source's", servers=("mariadb",)),
    Setting(name="default_collation_for_utf8mb4", value="utf8mb4_bin", why="the same", servers=("tidb",)),
)  # fmt: skip
# What a statement for tables may say, and what it makes.
_DDL = tuple(
    Setting(name=name, value=value, why=why, servers=servers, needs_right=needs_right)
    for name, value, why, servers, needs_right in (
        ("sql_if_exists", "0", "DROP and ALTER of what is not there pass without a word", ("mariadb",), False),
        ("alter_algorithm", "'DEFAULT'", "ALTER is refused where it can't be done in that way", ("mariadb",), False),
        ("old_alter_table", "0", "ALTER copies the table, and blocks its readers", ("mysql",), False),
        ("default_storage_engine", "InnoDB", "rows and state need transactions", KINDS, False),
        ("enforce_storage_engine", "NULL", "the same", ("mariadb",), True),
        ("explicit_defaults_for_timestamp", "ON", "TIMESTAMP columns get defaults that nobody wrote", _NOT_TIDB, False),
        ("innodb_strict_mode", "OFF", "refuses rows that could be too long, and options that mean nothing", _NOT_TIDB, True),
        ("sql_generate_invisible_primary_key", "OFF", "tables get a column of their own", ("mysql",), True),
        ("sql_require_primary_key", "OFF", "refuses tables without a key", ("mysql", "tidb"), True),
        ("restrict_fk_on_non_standard_key", "OFF", "refuses keys that the source takes", ("mysql",), False),
        ("tidb_placement_mode", "'IGNORE'", "placement rules name the source's machines", ("tidb",), False),
        ("tidb_enable_table_partition", "ON", "off: tables are made without their partitions", ("tidb",), False),
        ("tidb_enable_list_partition", "ON", "the same", ("tidb",), False),
        ("tidb_enable_exchange_partition", "ON", "refuses what the source takes", ("tidb",), False),
        ("tidb_enable_window_function", "ON", "the same, in views", ("tidb",), False),
        ("tidb_enable_auto_increment_in_generated", "ON", "the same", ("tidb",), False),
        ("tidb_allow_remove_auto_inc", "ON", "the same", ("tidb",), False),
        ("tidb_enable_strict_double_type_check", "OFF", "the same", ("tidb",), False),
    )
)  # fmt: skip
SETTINGS: tuple[Setting, ...] = (*_RESULTS, *_WRITES, *_REPORTS, *_LIMITS, *_MEANING, *_DDL)

INHERITED = {
    "only how fast, and with how much memory, a statement runs": (
        "optimizer_.*|join_.*|mrr_.*|eq_range_.*|expensive_.*|in_predicate_.*|analyze_.*|histogram_.*|use_stat_tables|range_alloc_.*|query_.*|"
        "(read|read_rnd|sort|preload|bulk_insert|set_operations|rowid_merge|aria_sort|select_into)_buff(er)?_.*|max_length_for_sort_data|"
        "max_rowid_filter_size|max_seeks_for_key|max_heap_table_size|tmp_.*table_size|max_tmp_tables|big_tables|internal_tmp_.*|parser_max_.*|"
        "innodb_(parallel|ddl)_.*|innodb_tmpdir|.*_repair_threads|myisam_.*|aria_.*|transaction_(alloc|prealloc)_.*|connection_memory_chunk_.*|"
        "global_connection_memory_.*|secondary_engine_.*|enable_secondary_.*|thread_pool_.*|deadlock_.*|net_(buffer|retry)_.*|tcp_nodelay|"
        "sql_buffer_result|low_priority_updates|ndb.*|join_buffer_.*|mpp_.*|max_delayed_threads|max_insert_delayed_threads|"
        "tidb_(opt|enable_(?!foreign)|allow|analyze|backoff|batch_(cop|pending).*|broadcast|build|checksum|cost|ddl|default_string|distsql|"
        "executor|hash|index|init_chunk|load_based|max|mem_arb|mem_quota_apply|merge|metric|min_paging|non_prepared|optimizer|partition_prune|"
        "pipelined|plan|prefer|prepared|pre_split|projection|regard|session_plan|stats|store|streamagg|track|use_plan|window|adaptive|"
        "ignore_prepared|runtime|skip_missing|evolve|pessimistic|lock_unchanged|wait_split|enforce_mpp|tmp_table|retry_limit|replica_read|"
        "broadcast_join|mpp|memory_debug|shard_allocate|merge_partition|remove_orderby|hashagg|batch|scatter)_?.*|tiflash_(?!fastscan).*"
    ),
    "how long a statement waits for a row that another connection holds; one that gives up is tried again": "innodb_lock_wait_timeout",
    "how the server stores, compresses or encrypts; the administrator's choice": (
        "column_compression_.*|innodb_compression_.*|innodb_default_encryption_.*|default_table_encryption|default_tmp_storage_engine|"
        "keep_files_on_create|storage_engine|tidb_row_format_version|tidb_shard_row_id_bits|innodb_ft_.*|external_table_.*|"
        "innodb_optimize_.*|innodb_create_.*"
    ),
    "logs, traces and profiles": (
        "(log|slow|long|profiling|min_examined|progress|end_markers|explain|sql_log|sql_warnings|debug|optimizer_trace|general)_?.*|"
        "tidb_(slow|redact|request_source|stmt|session_alias|txn_assertion).*|terminology_use_previous|histogram_generation_.*"
    ),
    "what goes into the binary log and to replicas, the cluster included": (
        "binlog.*|sql_log_bin|gtid_.*|server_id|immediate_.*|original_.*|pseudo_.*|rbr_.*|replicate.*|skip_.*replication|sql_slave_.*|"
        "max_relay_log_size|default_master_connection|group_replication_.*|wsrep_.*|transaction_(allow|write_set)_.*|xa_.*|"
        "system_versioning_(alter|insert)_history|tidb_cdc_.*|require_row_format"
    ),
    "what our statements do not do: views that are written, procedures, FULLTEXT, AVG, vectors, files, passwords, recursion, window functions": (
        "updatable_views_.*|max_sp_.*|sp_.*|max_points_.*|group_concat_max_len|windowing_.*|cte_max_.*|max_recursive_.*|standard_compliant_cte|mhnsw_.*|"
        "generated_random_.*|old_passwords|print_identified_.*|select_into_.*|innodb_table_locks|ndbinfo_.*|max_user_connections|rand_seed.|"
        "enable_cascade_triggers|old|new|new_mode|max_allowed_packet|information_schema_stats_expiry"
    ),
    "sent to clients that ask for it, which ours is none of": "session_track_.*|redirect_url|resultset_metadata|identity|last_insert_id|insert_id",
    "set for each statement, or by the driver": (
        "timestamp|(character_set|collation)_(client|connection|results|database|server)|tx_isolation_one_shot|tx_read_ts"
    ),
    "only under other isolation levels than ours, or for other transactions": (
        "innodb_snapshot_isolation|tidb_(skip_isolation|nontransactional|multi_statement|sysdate).*"
    ),
}
"""Why the rest is inherited → a pattern of the variables' names; `SETTINGS` takes precedence."""


def settings_for(kind: Kind, *, ddl: bool, names: Collection[str] | None = None) -> tuple[Setting, ...]:
    """Return the settings for a connection to such a server. `names` are the variables that it has, None if nobody has asked."""
    return tuple(
        setting
        for setting in SETTINGS
        if kind in setting.servers and not (ddl and setting.not_for_ddl) and (names is None or setting.name in names)
    )


def assigned(settings: Collection[Setting]) -> str:
    """Return one statement that sets all of these."""
    return "SET " + ", ".join(f"SESSION {setting.name} = {setting.value}" for setting in settings)
