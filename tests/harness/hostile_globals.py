"""Settings of servers that an administrator may have changed for all connections, each at the value that would hurt most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from tests.harness.servers import DatabaseServer

_COMMON = {
    "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,PIPES_AS_CONCAT'",
    "time_zone": "'+09:00'",
    "sql_select_limit": "1",
    "sql_big_selects": "0",
    "sql_safe_updates": "1",
    "sql_auto_is_null": "1",
    "autocommit": "0",
    "completion_type": "'CHAIN'",
    "transaction_isolation": "'REPEATABLE-READ'",
    "transaction_read_only": "1",
    "unique_checks": "0",
    "foreign_key_checks": "1",
    "auto_increment_increment": "7",
    "auto_increment_offset": "3",
    "sql_notes": "0",
    "max_error_count": "0",
    "lc_messages": "'de_DE'",
    "sql_quote_show_create": "0",
    "max_execution_time": "1",
    "wait_timeout": "1",
    "net_read_timeout": "1",
    "net_write_timeout": "1",
    "innodb_lock_wait_timeout": "1",
    "lock_wait_timeout": "1",
    "div_precision_increment": "0",
    "default_week_format": "7",
    "block_encryption_mode": "'aes-256-cbc'",
    "lc_time_names": "'de_DE'",
    "max_sort_length": "64",
    "group_concat_max_len": "4",
    "default_storage_engine": "MyISAM",
    "default_tmp_storage_engine": "MyISAM",
    "character_set_server": "latin1",
    "collation_server": "utf8mb4_general_ci",
    "collation_connection": "utf8mb4_unicode_ci",
    "character_set_client": "latin1",
    "character_set_connection": "latin1",
    "character_set_results": "latin1",
    "character_set_filesystem": "latin1",
    "range_alloc_block_size": "4096",
    "big_tables": "1",
    "low_priority_updates": "1",
    "profiling": "1",
    "sql_warnings": "1",
    "sql_buffer_result": "1",
    "updatable_views_with_limit": "0",
    "old_alter_table": "1",
    "innodb_strict_mode": "1",
    "explicit_defaults_for_timestamp": "0",
    "optimizer_prune_level": "0",
}
_OWN = {
    "mariadb": {
        "max_join_size": "1",
        "max_sort_length": "64",
        "tx_isolation": "'SERIALIZABLE'",
        "tx_read_only": "1",
        "system_versioning_asof": "'2001-01-01 00:00:00'",
        "system_versioning_alter_history": "KEEP",
        "wsrep_dirty_reads": "1",
        "check_constraint_checks": "0",
        "note_verbosity": "'basic,unusable_keys,explain'",
        "max_statement_time": "0.001",
        "idle_transaction_timeout": "1",
        "idle_write_transaction_timeout": "1",
        "idle_readonly_transaction_timeout": "1",
        "tmp_disk_table_size": "1024",
        "max_tmp_session_space_usage": "65536",
        "tmp_memory_table_size": "1024",
        # MariaDB 10.11.19 may crash with less, at the first use of something that it then keeps.
        "max_session_mem_used": "65536",
        "default_regex_flags": "'DOTALL,EXTENDED'",
        "old_mode": "'ZERO_DATE_TIME_CAST,NO_DUP_KEY_WARNINGS_WITH_IGNORE,NO_PROGRESS_INFO'",
        "sql_if_exists": "1",
        "alter_algorithm": "'INSTANT'",
        "enforce_storage_engine": "Aria",
        "innodb_snapshot_isolation": "1",
        "in_predicate_conversion_threshold": "2",
        "optimizer_max_sel_arg_weight": "0",
        "standard_compliant_cte": "0",
        "lock_wait_timeout": "0",
        "innodb_lock_wait_timeout": "0",
    },
    "mysql": {
        "max_join_size": "1",
        "max_sort_length": "4",
        "lc_messages": "'de_DE'",
        "default_collation_for_utf8mb4": "utf8mb4_general_ci",
        "show_create_table_skip_secondary_engine": "1",
        "show_create_table_verbosity": "1",
        "show_gipk_in_create_table_and_information_schema": "0",
        "sql_generate_invisible_primary_key": "1",
        "sql_require_primary_key": "1",
        "restrict_fk_on_non_standard_key": "1",
        "range_optimizer_max_mem_size": "1",
        "connection_memory_limit": "2097152",
        "print_identified_with_as_hex": "1",
        "information_schema_stats_expiry": "0",
        "windowing_use_high_precision": "0",
        "xa_detach_on_prepare": "0",
        "terminology_use_previous": "'BEFORE_8_0_26'",
        "enable_cascade_triggers": "1",
    },
    "tidb": {
        "max_error_count": "0",
        "tidb_enable_noop_functions": "'WARN'",
        "tidb_read_staleness": "-5",
        "tidb_low_resolution_tso": "1",
        "tidb_read_consistency": "'weak'",
        "tidb_rc_read_check_ts": "1",
        "tidb_rc_write_check_ts": "1",
        "tidb_isolation_read_engines": "'tiflash'",
        "tidb_replica_read": "'follower'",
        "tidb_allow_mpp": "0",
        "tidb_enforce_mpp": "1",
        "tiflash_fastscan": "1",
        "tidb_enable_unsafe_substitute": "1",
        "tidb_txn_mode": "'optimistic'",
        "tidb_disable_txn_auto_retry": "0",
        "tidb_retry_limit": "0",
        "tidb_constraint_check_in_place": "0",
        "tidb_constraint_check_in_place_pessimistic": "0",
        "tidb_batch_insert": "1",
        "tidb_batch_delete": "1",
        "tidb_batch_commit": "1",
        "tidb_enable_batch_dml": "1",
        "tidb_dml_batch_size": "1",
        "tidb_dml_type": "'bulk'",
        "tidb_guarantee_linearizability": "0",
        "tidb_skip_utf8_check": "1",
        "tidb_skip_ascii_check": "1",
        "tidb_idle_transaction_timeout": "1",
        "tidb_opt_range_max_size": "1",
        "tidb_mem_quota_query": "1",
        "tikv_client_read_timeout": "1",
        "tidb_redact_log": "1",
        "tidb_opt_write_row_id": "1",
        "tidb_multi_statement_mode": "'ON'",
        "default_collation_for_utf8mb4": "utf8mb4_general_ci",
        "sql_require_primary_key": "1",
        "tidb_enable_exchange_partition": "0",
        "tidb_enable_window_function": "0",
        "tidb_enable_auto_increment_in_generated": "0",
        "tidb_enable_strict_double_type_check": "1",
        "tidb_row_format_version": "1",
        "tidb_partition_prune_mode": "'static'",
        "tidb_enable_mutation_checker": "0",
        "tidb_txn_assertion_level": "'STRICT'",
        "tidb_sysdate_is_now": "1",
        "tidb_enable_async_commit": "1",
        "tidb_enable_1pc": "1",
        "tidb_enable_vectorized_expression": "0",
        "tidb_enable_ordered_result_mode": "1",
        "tidb_cdc_write_source": "1",
        "tidb_pessimistic_txn_fair_locking": "0",
        "tidb_lock_unchanged_keys": "0",
        "tidb_enable_paging": "0",
        "tidb_enable_table_partition": "0",
        "tidb_enable_external_ts_read": "1",
    },
}
_NO_INIT_CONNECT = {"tidb": ("lc_time_names", "explicit_defaults_for_timestamp")}
"""Those that TiDB does not even take there."""
HOSTILE = {
    kind: {name: value for name, value in {**_COMMON, **own}.items() if name not in _NO_INIT_CONNECT.get(kind, ())}
    for kind, own in _OWN.items()
}
"""Server → variable → its worst value in SQL; a server takes no notice of those that it does not know or keeps to sessions."""


_PATIENT = "SET SESSION wait_timeout = 28800"
_OF_SESSIONS = 1238
"""The server's number for a variable that has no global value; an `init_connect` can set it nevertheless."""


@contextmanager
def changed(server: DatabaseServer, name: str, value: str) -> Iterator[None]:
    """Set a variable for all new connections inside the block, where this server takes that."""
    with server.connect(init_command=_PATIENT) as administrator, administrator.cursor() as cursor:
        statement = f"SET SESSION {name} = {value}"
        try:
            before = _global(cursor, name)
            cursor.execute(f"SET GLOBAL {name} = {value}")
        except MySQLError as fault:
            if fault.args[0] != _OF_SESSIONS:
                yield
                return
            name, before = "init_connect", _global(cursor, "init_connect")
            cursor.execute("SET GLOBAL init_connect = %s", ("; ".join(filter(None, (str(before), statement))),))
        try:
            yield
        finally:
            old = "DEFAULT" if before == "DEFAULT" else administrator.escape(before)
            cursor.execute(f"SET GLOBAL {name} = {old}")


def _global(cursor: Cursor, name: str) -> object:
    cursor.execute(f"SELECT @@GLOBAL.{name}")
    ((value,),) = cursor.fetchall()
    return value
