"""The session of our statements: every server variable that could change their effect.

A new connection inherits what an administrator made the default for all connections. What could cut
a result short, refuse or weaken a statement, or change what a text means, is set here, for our own
connections only: in one statement, once it is known which variables the server has and this user
may set. The rest is inherited: what only affects speed, memory, logs, physical layout or the binary
log is the administrator's choice.

A process that is paused, or cut off from the network, may have stopped in the middle of a
transaction. The server keeps that open, with its locks on the state, until the connection ends,
which can take hours. The fence refuses whatever it would still write, so nobody has to wait for it:
`evict` ends its connections.

For most variables `DEFAULT` is no value to set: it means the administrator's default, not the
server's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import pymysql.err
from pymysql.connections import Connection

from storage_consumer.config.settings import Downstream
from storage_consumer.decode.values import session_zone
from storage_consumer.errors import StorageConsumerError
from storage_consumer.target.existing_names import text_of
from storage_consumer.target.mysql_errors import number_of
from storage_consumer.telemetry import Log

Kind = Literal["mariadb", "mysql", "tidb"]
KINDS: tuple[Kind, ...] = ("mariadb", "mysql", "tidb")
_MARIADB, _MYSQL, _TIDB = (KINDS[:1], KINDS[1:2], KINDS[2:])
_NOT_TIDB, _NOT_MARIADB = KINDS[:2], KINDS[1:]
_UNLIMITED = "18446744073709551615"


@dataclass(frozen=True, slots=True)
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
    """Whether some server requires a privilege to set it; without that it is inherited."""
    first: bool = False
    """Whether even the query for the server's variables may fail without it."""


SETTINGS = (
    # What a query returns.
    Setting("sql_select_limit", _UNLIMITED, "cuts every result, of the state and of information_schema too"),
    # the limit before the switch: setting the limit turns the switch off
    Setting("max_join_size", _UNLIMITED, "refuses joins and reads that it takes for large", first=True),
    Setting("sql_big_selects", "1", "off: the same", first=True),
    Setting("sql_safe_updates", "0", "refuses UPDATE and DELETE without a key: the lease, keyless rows"),
    Setting("sql_auto_is_null", "0", "`IS NULL` then finds the row that was inserted last"),
    Setting("max_sort_length", "1024", "ORDER BY compares only so many bytes of a text"),
    Setting("system_versioning_asof", "DEFAULT", "SELECT then reads rows of the past", _MARIADB),
    Setting("wsrep_dirty_reads", "0", "a node without its cluster then answers with old rows", _MARIADB),
    Setting("use_secondary_engine", "OFF", "SELECT may be answered from a copy that lags", _MYSQL),
    Setting("query_cache_type", "0", "results come from a cache", _NOT_TIDB),
    Setting("tidb_snapshot", "''", "reads the past, and refuses writes", _TIDB),
    Setting("tidb_read_staleness", "0", "reads the past", _TIDB),
    Setting("tidb_enable_external_ts_read", "OFF", "reads the past", _TIDB),
    Setting("tidb_low_resolution_tso", "OFF", "reads may be 2 s old, and writes are refused", _TIDB),
    Setting("tidb_read_consistency", "'strict'", "weak: reads pass over locks", _TIDB),
    Setting("tidb_rc_write_check_ts", "OFF", "writes may judge by an older read", _TIDB),
    Setting("tidb_isolation_read_engines", "'tikv,tiflash,tidb'", "reads are refused where TiKV is not among them", _TIDB),
    Setting("tiflash_fastscan", "OFF", "TiFlash then answers with several versions of a row", _TIDB),
    Setting("tidb_enable_unsafe_substitute", "OFF", "expressions are replaced by generated columns of other types", _TIDB),
    # What a write does, locks and commits.
    Setting("autocommit", "1", "off: every statement waits for a COMMIT that is not sent"),
    Setting("completion_type", "0", "COMMIT then begins another transaction, or ends the connection"),
    Setting("tx_isolation", "'READ-COMMITTED'", "locks and reads as the fence expects them"),
    Setting("transaction_isolation", "'READ-COMMITTED'", "the same"),
    Setting("tx_read_only", "0", "refuses every write"),
    Setting("transaction_read_only", "0", "the same"),
    Setting("unique_checks", "1", "off: InnoDB may take a key twice"),
    Setting("foreign_key_checks", "0", "tables are written apart from each other, and children may come first"),
    Setting("check_constraint_checks", "1", "off: rows are not checked, other than on the other servers", _MARIADB, not_for_ddl=True),
    Setting("auto_increment_increment", "1", "numbers that a new column is filled with"),
    Setting("auto_increment_offset", "1", "the same"),
    Setting("tidb_txn_mode", "'pessimistic'", "optimistic: FOR UPDATE locks nothing", _TIDB),
    Setting("tidb_disable_txn_auto_retry", "ON", "off: a lost optimistic transaction is repeated on other rows", _TIDB),
    Setting("tidb_constraint_check_in_place", "ON", "keys are checked late, with another error", _TIDB),
    Setting("tidb_constraint_check_in_place_pessimistic", "ON", "the same", _TIDB),
    Setting("tidb_batch_insert", "OFF", "a statement commits in pieces", _TIDB),
    Setting("tidb_batch_delete", "OFF", "the same", _TIDB),
    Setting("tidb_batch_commit", "OFF", "the same", _TIDB),
    Setting("tidb_dml_batch_size", "0", "the size of these pieces", _TIDB),
    Setting("tidb_txn_entry_size_limit", "125829120", "refuses a row over 6 MiB; this is the most that it can be", _TIDB),
    Setting("tidb_dml_type", "'standard'", "bulk: a statement commits in a way of its own", _TIDB),
    Setting("tidb_guarantee_linearizability", "ON", "off: another connection may not see what was committed", _TIDB),
    Setting("tidb_skip_utf8_check", "OFF", "bytes that are no text are taken", _TIDB),
    Setting("tidb_skip_ascii_check", "OFF", "the same", _TIDB),
    Setting("allow_auto_random_explicit_insert", "ON", "rows carry the values of AUTO_RANDOM columns", _TIDB),
    Setting("binlog_format", "IF(@@SESSION.binlog_format = 'STATEMENT', 'MIXED', @@SESSION.binlog_format)", "STATEMENT refuses InnoDB's writes under READ COMMITTED", _NOT_TIDB, needs_right=True),
    # What the server reports: notes, warnings, errors, and the text of SHOW CREATE.
    Setting("sql_notes", "1", "off: notes, such as of a value that was rounded, are not counted"),
    Setting("note_verbosity", "'basic'", "notes on how indexes are used would pass for refused values", _MARIADB),
    Setting("max_error_count", "64", "0: the texts of warnings are thrown away", needs_right=True),
    Setting("lc_messages", "'en_US'", "errors are told apart by their texts where the numbers do not do"),
    Setting("sql_quote_show_create", "1", "SHOW CREATE is compared"),
    Setting("show_create_table_skip_secondary_engine", "0", "the same"),
    Setting("show_create_table_verbosity", "0", "the same"),
    Setting("show_old_temporals", "0", "the same"),
    Setting("show_gipk_in_create_table_and_information_schema", "1", "off: a key that the target has does not show", _MYSQL),
    # What breaks off a statement or a connection.
    Setting("max_execution_time", "0", "breaks statements off", _NOT_MARIADB, first=True),
    Setting("max_statement_time", "0", "the same", _MARIADB, first=True),
    Setting("idle_transaction_timeout", "0", "ends the connection while rows are read for it"),
    Setting("idle_write_transaction_timeout", "0", "the same"),
    Setting("idle_readonly_transaction_timeout", "0", "the same"),
    Setting("tidb_idle_transaction_timeout", "0", "the same"),
    Setting("wait_timeout", "28800", "ends the connection between two statements"),
    Setting("interactive_timeout", "28800", "the same"),
    Setting("net_read_timeout", "60", "ends the connection while rows are sent"),
    Setting("net_write_timeout", "60", "the same"),
    Setting("lock_wait_timeout", "86400", "gives up immediately where another connection holds a table; for DDL --ddl-lock-wait says it", not_for_ddl=True),
    Setting("tmp_disk_table_size", _UNLIMITED, "reads of information_schema fail as if the disk were full", _MARIADB),
    Setting("max_tmp_session_space_usage", "0", "refuses statements whose temporary tables grow", _MARIADB),
    Setting("max_session_mem_used", "9223372036854775807", "refuses statements", _MARIADB, first=True),
    Setting("connection_memory_limit", _UNLIMITED, "ends the connection", _MYSQL, needs_right=True),
    Setting("range_optimizer_max_mem_size", "0", "many keys in one statement raise a warning and read the whole table", _MYSQL),
    Setting("tidb_opt_range_max_size", "0", "the same", _TIDB),
    Setting("tidb_mem_quota_query", "IF(@@SESSION.tidb_mem_quota_query BETWEEN 0 AND 1073741824, 1073741824, @@SESSION.tidb_mem_quota_query)", "breaks statements off; a larger one may be wanted for large windows", _TIDB, first=True),
    Setting("tikv_client_read_timeout", "0", "every read is tried again without end", _TIDB),
    # What an expression or a name in a statement means.
    Setting("div_precision_increment", "4", "digits of a division in a generated column"),
    Setting("default_week_format", "0", "WEEK() in a generated column"),
    Setting("block_encryption_mode", "'aes-128-ecb'", "AES_ENCRYPT() in a generated column"),
    Setting("lc_time_names", "'en_US'", "names of days and months in a generated column"),
    Setting("default_regex_flags", "''", "REGEXP in a generated column or a check", _MARIADB),
    Setting("old_mode", "''", "casts of TIME, and texts of warnings", _MARIADB),
    # where it is known, `utf8` means utf8mb4 without it
    Setting("old_mode", "'UTF8_IS_UTF8MB3'", "utf8 in a statement means three bytes, as at the source", _MARIADB),
    Setting("character_set_filesystem", "binary", "names of files in statements", needs_right=True),
    Setting("character_set_collations", "'utf8mb4=utf8mb4_bin'", "utf8mb4 without a collation means the source's", _MARIADB),
    Setting("default_collation_for_utf8mb4", "utf8mb4_bin", "the same", _TIDB),
    # What a statement for tables may say, and what it makes.
    Setting("sql_if_exists", "0", "DROP and ALTER of what is not there pass without a word", _MARIADB),
    Setting("alter_algorithm", "'DEFAULT'", "ALTER is refused where it can't be done in that way", _MARIADB),
    Setting("old_alter_table", "0", "ALTER copies the table, and blocks its readers", _MYSQL),
    Setting("default_storage_engine", "InnoDB", "rows and state need transactions"),
    Setting("enforce_storage_engine", "NULL", "the same", _MARIADB, needs_right=True),
    Setting("explicit_defaults_for_timestamp", "ON", "TIMESTAMP columns get defaults that nobody wrote", _NOT_TIDB),
    Setting("innodb_strict_mode", "OFF", "refuses rows that could be too long, and options that mean nothing", _NOT_TIDB, needs_right=True),
    Setting("sql_generate_invisible_primary_key", "OFF", "tables get a column of their own", _MYSQL, needs_right=True),
    Setting("sql_require_primary_key", "OFF", "refuses tables without a key", _NOT_MARIADB, needs_right=True),
    Setting("restrict_fk_on_non_standard_key", "OFF", "refuses keys that the source takes", _MYSQL),
    Setting("tidb_placement_mode", "'IGNORE'", "placement rules name the source's machines", _TIDB),
    Setting("tidb_enable_table_partition", "ON", "off: tables are made without their partitions", _TIDB),
    Setting("tidb_enable_list_partition", "ON", "the same", _TIDB),
    Setting("tidb_enable_exchange_partition", "ON", "refuses what the source takes", _TIDB),
    Setting("tidb_enable_window_function", "ON", "the same, in views", _TIDB),
    Setting("tidb_enable_auto_increment_in_generated", "ON", "the same", _TIDB),
    Setting("tidb_allow_remove_auto_inc", "ON", "the same", _TIDB),
    Setting("tidb_enable_strict_double_type_check", "OFF", "the same", _TIDB),
)  # fmt: skip


def assigned(settings: Collection[Setting]) -> str:
    """Return one statement that sets all of these."""
    return "SET " + ", ".join(f"SESSION {setting.name} = {setting.value}" for setting in settings)


ROW_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for rows: unfit values are errors; zero and invalid dates the source may hold."""
LOOSE_ROW_MODE = ROW_MODE.removeprefix("STRICT_ALL_TABLES,")
"""The same, but unfit values are changed; only for rows that fitted otherwise."""
DDL_MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION"
"""sql_mode for DDL: not strict, as in TiCDC's MySQL sink, since the source took it."""
MARIADB_DDL_MODE = DDL_MODE + ",TIME_ROUND_FRACTIONAL"
"""The same for MariaDB, which else truncates fractions of seconds that the source rounds."""
_NOT_SETTABLE = frozenset((1193, 1227, 1228, 1229, 1231, 1232, 1235, 1238, 1621, 8047))
"""Errors for variables or values that this version lacks, and for a missing privilege."""

Query = Callable[[str], Any]
"""Runs a statement, and raises the driver's errors."""
_known: dict[tuple[object, ...], tuple[Setting, ...]] = {}
"""Server and user → what can be set there, found out by the first connection of this process."""


def kind_of(version: str) -> Kind:
    """Return the kind of server that reports this version."""
    # A MariaDB or a TiDB may begin with the version of a MySQL; the words behind it decide.
    text = version.lower()
    return "tidb" if "tidb" in text else "mariadb" if "mariadb" in text else "mysql"


def fetched(
    connection: Connection[Any], sql: str, arguments: Collection[Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return all rows of a query; raise the driver's errors. With arguments ``%%`` is one ``%``."""
    with connection.cursor() as cursor:
        cursor.execute(sql, None if arguments is None else tuple(arguments))
        return list(cursor.fetchall())


def set_session(
    connection: Connection[Any], version: str, downstream: Downstream, *, ddl: bool
) -> None:
    """Set everything that the meaning of our statements depends on. Raise the driver's errors."""
    kind, query = kind_of(version), connection.query
    key = (downstream.address, downstream.user, version, ddl)
    # What every server knows and any user may set; no connection goes without.
    mode = (MARIADB_DDL_MODE if kind == "mariadb" else DDL_MODE) if ddl else ROW_MODE
    values = {
        "sql_mode": f"'{mode}'",
        "time_zone": f"'{session_zone(downstream.time_zone)}'",
        "foreign_key_checks": "0",
        "sql_select_limit": _UNLIMITED,
    }
    if ddl:
        # The wait for a lock on the whole table; connections without DDL wait a day (`SETTINGS`).
        values["lock_wait_timeout"] = str(max(1, downstream.ddl_lock_wait))
    if ddl and kind == "mariadb":
        # An ALTER that copies a table would ask again whether its JSON is valid, which MariaDB
        # denies of what is deeper than 31 levels.
        values["check_constraint_checks"] = "0"
    own = tuple(Setting(name, value, "") for name, value in values.items())
    # A known server costs one statement; a process's first connection asks for its variables.
    known = _known.get(key)
    if known is not None:
        try:
            query(assigned((*own, *known)))
        except pymysql.err.MySQLError as fault:
            # The server or its privileges have changed since: find out again below.
            if number_of(fault) not in _NOT_SETTABLE:
                raise
        else:
            return
    query(assigned(own))
    wanted = [each for each in SETTINGS if kind in each.servers and not (ddl and each.not_for_ddl)]
    # Without these the server may refuse even the query for its variables.
    _set(query, [setting for setting in wanted if setting.first])
    listed = ", ".join(f"'{setting.name}'" for setting in wanted)
    names = {
        text_of(name).lower()
        for name, *_ in fetched(
            connection, f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})"
        )
    }
    there = [setting for setting in wanted if setting.name in names]
    # Apart from those that need a right: one refusal has all of its statement set one by one.
    taken = _set(query, [setting for setting in there if not setting.needs_right])
    _known[key] = (*taken, *_set(query, [setting for setting in there if setting.needs_right]))


def _set(query: Query, settings: list[Setting]) -> list[Setting]:
    """Set these in one statement, or singly if that is refused; return the accepted ones."""
    if not settings:
        return []
    try:
        query(assigned(settings))
    except pymysql.err.MySQLError as fault:
        if number_of(fault) not in _NOT_SETTABLE:
            raise
        if len(settings) == 1:
            return []
        # One variable that cannot be set refuses the whole statement: set each singly.
        return [taken for setting in settings for taken in _set(query, [setting])]
    return settings


_log = Log("state")
Run = Callable[[str], Any]
"""Runs a statement, and raises our errors for the server's."""


def mark(query: Callable[[str], Any], state_schema: str) -> None:
    """Mark a connection as ours: its default database is the state schema, which others avoid.

    Connections for DDL do not get that mark: `database.fenced` decides about them, and whether to
    wait for their statement.

    Raise the server's error if that schema does not exist yet.
    """
    name = state_schema.replace("`", "``")
    query(f"USE `{name}`")


def evict(run: Run, state_schema: str, ours: Collection[int]) -> tuple[int, ...]:
    """End connections of this user with our `mark`, except `ours` and SELECTs; return their ids.

    `run` goes through a marked connection too. A connection that runs a SELECT waits for a lock as
    we do, and holds none that we want. Any user may end connections of the same user name without a
    privilege.
    """
    found: tuple[int, ...] = ()
    # Other connections with our default database, of the server that answers, else of any other in
    # its cluster. The server's own spelling of that database is compared: a name that differs only
    # by case is another state. The driver formats the text, which halves the doubled `%`.
    # TiDB alone has the second one, and takes long over it
    for listing in ("processlist", "cluster_processlist"):
        with suppress(StorageConsumerError):
            rows = run(
                # One's own user only: nobody else's connection is ours to end. Its name may hold an
                # @, the host's may not.
                f"SELECT id FROM information_schema.{listing} WHERE CAST(db AS BINARY) = CAST(DATABASE() AS BINARY) "
                "AND user = LEFT(USER(), CHAR_LENGTH(USER()) - 1 - CHAR_LENGTH(SUBSTRING_INDEX(USER(), '@', -1))) "
                "AND COALESCE(info, '') NOT LIKE 'SELECT%%'"
            )
            if found := tuple(sorted({int(connection) for (connection,) in rows}.difference(ours))):
                break
    for connection in found:
        # Errors are passed over: a connection may have ended by itself, and the caller tries its
        # own work again anyway.
        # the second one is for TiDB without its global ids
        for statement in ("KILL {}", "KILL TIDB {}"):
            with suppress(StorageConsumerError):
                run(statement.format(connection))
    if found:
        _log.warning("connections_ended", connections=found, state_schema=state_schema)
    return found
