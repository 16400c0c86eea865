"""What an administrator made the default for all connections changes nothing of what we write, read and run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, StorageConsumerError
from storage_consumer.model import TableName
from storage_consumer.target import session_settings as session
from storage_consumer.target.bucket_writer import TargetWriter
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.session_settings import SETTINGS
from tests.contract.state_rigs import BUCKET, fenced_spec, progress
from tests.contract.test_keyless import LINES, WORK
from tests.harness.hostile_globals import HOSTILE, changed
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ts
from tests.unit.halves import as_events, as_runs, table

pytestmark = pytest.mark.server
_RIGHTS = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, CREATE VIEW, SHOW VIEW"
"""Those that the pages ask for; none with which a server spares a user its `init_connect`."""
_NEED_RIGHTS = {setting.name for setting in SETTINGS if setting.needs_right}
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
_NO_SESSION_VALUE = (1193, 1228, 1229, 1238)
_LOG_COLUMNS = (
    "i INT, t VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, l CHAR(5) CHARACTER SET latin1, f FLOAT, j JSON, "
    "b BLOB, n BIT(9), e ENUM('a', 'B'), d DATETIME(3)"
)
DDL = (
    (
        "CREATE TABLE `orders` (`c0` VARCHAR(20) PRIMARY KEY,`c1` VARCHAR(20),"
        "`half` DECIMAL(20,10) AS (length(`c1`) / 3) STORED,UNIQUE KEY(`c1`))"
    ),
    f"CREATE TABLE `log` ({_LOG_COLUMNS})",
    (
        "CREATE TABLE `parts` (`id` INT PRIMARY KEY,`d` DATE,`w` INT AS ({week}) STORED,`n` CHAR(3) CHARACTER SET utf8) "
        "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10),PARTITION p1 VALUES LESS THAN MAXVALUE)"
    ),
    "INSERT INTO `parts` (`id`, `d`, `n`) VALUES (1, '2024-01-07', 'a'), (11, '2023-01-01', 'b')",
    "CREATE TABLE `child` (`id` INT PRIMARY KEY,`x` INT,CONSTRAINT `fk` FOREIGN KEY (`x`) REFERENCES `parent`(`id`))",
    "CREATE TABLE `parent` (`id` INT PRIMARY KEY,`at` TIMESTAMP)",
    "ALTER TABLE `orders` ADD COLUMN `since` DATETIME DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE `parts` MODIFY COLUMN `n` CHAR(5) CHARACTER SET utf8",
    "CREATE VIEW `seen` AS SELECT `c0`, 'x' AS `x` FROM `orders`",
    "ALTER TABLE `orders` ADD INDEX `later` (`since`)",
    "CREATE TABLE `quoted` (`id` INT PRIMARY KEY,`s` VARCHAR(9) DEFAULT \"a\\\\b\",`z` DATETIME NOT NULL DEFAULT '0000-00-00 00:00:00',`a` DATETIME(3),`b` TIME(2))",
    "INSERT INTO `quoted` (`id`, `a`, `b`) VALUES (1, '2024-05-06 07:08:09.500', '10:00:00.49')",
    "ALTER TABLE `quoted` MODIFY COLUMN `s` VARCHAR(2), MODIFY COLUMN `a` DATETIME, MODIFY COLUMN `b` TIME",
)
WRONG = "ALTER TABLE `parts` DROP COLUMN `missing`"


@dataclass
class Trial:
    """One user's work on one server: statements, state, rows by every way; and what our own connections saw of it."""

    server: DatabaseServer
    user: str
    seen: list[Any] = field(default_factory=list)

    def run(self) -> list[Any]:
        """Return all that was seen, the same on any server whose rows and tables came out right."""
        session._known.clear()
        target = Downstream(port=self.server.port, user=self.user, ssl_mode="disabled")
        with ExitStack() as stack:
            database = TargetDatabase(target, "")
            stack.callback(database.close)
            self._ddl(database)
            state = StateStore(target, "")
            stack.callback(state.close)
            state.open(BUCKET)
            assert state.lease.acquire("me", 30) == ""
            self._rows(state, target)
            assert state.lease.renew(30)
            state.progress.save(
                tables=[progress(f"d/t{number}", number) for number in range(5)],
                sequences={},
                checkpoint=4,
                storage_checkpoint=5,
            )
            names = [TableName(schema="shop", table=name) for name in ("orders", "log", "parts", "child")]
            self.seen.append(sorted(map(repr, database.describe(names).values())))
            self.seen.append(database.fingerprint([*names, TableName(schema="shop", table="")]))
            restart, _ = state.progress.load()
            self.seen.append(sorted(restart.tables.items()))
            state.lease.release()
        return self.seen

    def _ddl(self, database: TargetDatabase) -> None:
        database.server_info()
        database.execute_ddl("CREATE DATABASE `shop` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "", ts(1))
        for number, statement in enumerate(DDL):
            assert database.fence_ddl()
            week = (
                "`id` / 3" if self.server.kind == "mariadb" else "week(`d`)"
            )  # MariaDB takes none that a session decides
            database.execute_ddl(statement.replace("{week}", week), "shop", ts(2 + number))
        with pytest.raises(DdlFailed):
            database.execute_ddl(WRONG, "shop", ts(50))

    def _rows(self, state: StateStore, target: Downstream) -> None:
        window = state.lease.open_window(1, 0)
        spec = fenced_spec(target, epoch=state.lease.epoch, window_id=window, load_data=True)
        for load_data, first in ((True, b"l"), (False, b"i")):
            writer = TargetWriter(replace(spec, load_data=load_data), "", 0)
            many = [b"%s%d\t%s-%d" % (first, number, first, number) for number in range(40)]
            writer.write_runs(replace(table(), has_other_unique_keys=False), as_runs([], many))
            writer.write_runs(
                replace(table(), has_other_unique_keys=False),
                as_runs([b"%s%d" % (first, number) for number in range(9)], []),
            )
            with pytest.raises(StorageConsumerError):
                writer.write_runs(table(), as_runs([], [b"%s\t%s" % (first, b"x" * 30)]))
            writer.close()
        writer = TargetWriter(spec, "", 0)
        events = [(5, [(True, line) for line in LINES * 2]), (6, [(False, line) for line in LINES])]
        writer.write_events(WORK, as_events(*events))
        writer.close()


def outcome(server: DatabaseServer) -> tuple[Any, ...]:
    """Return what a neutral connection finds: all rows, and what the tables are."""
    rows = {
        name: sorted(map(repr, server.query(f"SELECT {what} FROM shop.{name}")))
        for name, what in {"orders": "c0, c1, half", "log": "*", "parts": "*", "seen": "*", "quoted": "*"}.items()
    }
    shown = [
        server.query(f"SHOW CREATE TABLE shop.{name}")[0][1]
        for name in ("orders", "log", "parts", "child", "parent", "quoted")
    ]
    engines = server.query("SELECT engine FROM information_schema.tables WHERE table_schema = 'storage_consumer'")
    return rows, shown, sorted(set(engines))


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What comes of it with the servers' own settings, by server and user."""
    return {}


@pytest.fixture
def clean(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server with a user ``app``."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    found.query("CREATE USER app@'%'")
    found.query(f"GRANT {_RIGHTS} ON *.* TO app@'%'")
    yield found
    found.query("DROP USER app@'%'")
    found.drop_all()


def compared(server: DatabaseServer, user: str, expected: dict[str, Any]) -> None:
    """Work, and compare with what came of it with the server's own settings."""
    key = f"{server.kind} {user}"
    if key not in expected:
        expected[key] = (Trial(server, user).run(), outcome(server))
        columns = "SELECT {} FROM information_schema.columns WHERE table_schema = 'shop' AND table_name = '{}'"
        # A TIMESTAMP that says nothing may be NULL; a table without a key has the columns that it has at the source.
        assert server.query(columns.format("is_nullable", "parent") + " AND column_name = 'at'") == (("YES",),)
        assert server.query(columns.format("COUNT(*)", "log")) == ((len(LINES[0].split(b"\t")),),)
        server.drop_all()


_AT_ONCE = 8
"""So many are changed together: each would show, since none takes the effect of another one away."""


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield server and names; what only a right undoes alone."""
    for kind in KINDS:
        usual = [name for name in HOSTILE[kind] if name not in _NEED_RIGHTS]
        yield from ((kind, (name,)) for name in HOSTILE[kind] if name in _NEED_RIGHTS)
        apart = -(-len(usual) // _AT_ONCE)
        yield from ((kind, tuple(usual[first::apart])) for first in range(apart))


@pytest.mark.parametrize(("clean", "names"), list(cases()), indirect=["clean"])
def test_hostile_globals(clean: DatabaseServer, names: tuple[str, ...], expected: dict[str, Any]) -> None:
    """Settings at their worst change no row, no table and no answer; where only a right would undo one, it is an error at most."""
    only_by_right = names[0] in _NEED_RIGHTS
    for user in ("app", "root") if only_by_right else ("app",):
        compared(clean, user, expected)
        found: list[Any] = []
        lacks_right = only_by_right and user == "app"
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(changed(clean, name, HOSTILE[clean.kind][name]))
            with suppress(StorageConsumerError) if lacks_right else nullcontext():
                found.append(Trial(clean, user).run())
        seen, (rows, *tables) = expected[f"{clean.kind} {user}"]
        for one in found:
            now, *shown = outcome(clean)
            assert now == rows
            assert lacks_right or (one, shown) == (
                seen,
                tables,
            )  # a table may get an invisible key without the right, say
        clean.drop_all()


def test_wide_rows(server: DatabaseServer) -> None:
    """A row that could be longer than half a page of InnoDB is no reason to refuse a table, where the user may lift that."""
    server.query("CREATE DATABASE d")
    columns = ",".join(f"`c{number}` CHAR(200) CHARACTER SET latin1 COLLATE latin1_bin" for number in range(60))
    with changed(server, "innodb_strict_mode", "1"), closing(TargetDatabase(Downstream(port=server.port), "")) as ours:
        ours.execute_ddl(f"CREATE TABLE `wide` (`id` INT PRIMARY KEY,{columns})", "d", ts(2))


def test_every_variable_was_judged(server: DatabaseServer) -> None:
    """Each variable that a session can set is set, or inherited for a reason; a new version's new ones have to be looked at."""
    judged = {setting.name for setting in SETTINGS} | {"sql_mode", "time_zone"}
    inherited = re.compile("|".join(INHERITED.values()))
    unjudged = []
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SESSION VARIABLES")
        for name, _ in cursor.fetchall():
            if name not in judged and not inherited.fullmatch(name) and _can_be_set(cursor, name):
                unjudged.append(name)
    assert unjudged == []


def _can_be_set(cursor: Cursor, name: str) -> bool:
    try:
        cursor.execute(f"SET SESSION `{name}` = @@SESSION.`{name}`")
    except MySQLError as fault:
        return fault.args[0] not in _NO_SESSION_VALUE
    return True
