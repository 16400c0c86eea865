"""The driver's view of a target, on every server: names in any case, structures of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.errors import DdlFailed, TargetUnavailable
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.database import TargetDatabase
from tests.harness.servers import KINDS, DatabaseServer, learn_zone
from tests.harness.small_bucket import ts

pytestmark = pytest.mark.server
CASE_COUNTS = tuple(kind for kind in KINDS if kind != "tidb")


@dataclass(slots=True)
class Rig:
    """A server with an empty database ``Shop``."""

    server: DatabaseServer
    database: TargetDatabase

    def structure(self, table: str, schema: str = "Shop") -> str:
        """The fingerprint of one table."""
        return self.database.fingerprint([TableName(schema=schema, table=table)])


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """On each server in turn."""
    server: DatabaseServer = request.getfixturevalue(request.param)
    for name in ("Shop", "storage_consumer"):
        server.query(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    database = TargetDatabase(Downstream(port=server.port), "")
    yield Rig(server=server, database=database)
    database.close()


def test_view_is_distinguished_from_a_table(rig: Rig) -> None:
    """A view is known as one, so that no row is written through it."""
    rig.server.query("CREATE TABLE Shop.t (id INT PRIMARY KEY)")
    rig.server.query("CREATE VIEW Shop.v AS SELECT id FROM Shop.t")
    names = [TableName(schema="Shop", table=name) for name in ("t", "v")]
    found = rig.database.describe(names)
    assert [found[name.folded()].is_view for name in names] == [False, True]


def test_names_are_found_in_any_case(rig: Rig) -> None:
    """Tables, indexes and databases are found by names in another case, and given in the target's own."""
    rig.server.query("CREATE TABLE Shop.Orders (id INT PRIMARY KEY, v INT, KEY Vi (v))")
    wanted = TableName(schema="SHOP", table="orderS")
    found = rig.database.describe([wanted])[wanted.folded()]
    assert (found.name, [column.name for column in found.columns]) == (
        TableName(schema="Shop", table="Orders"),
        ["id", "v"],
    )
    assert [key.name for key in found.unique_keys] == ["PRIMARY"]
    assert rig.database.part_names(wanted).indexes == {"primary", "vi"}
    assert rig.database.database_collation("sHoP") == "utf8mb4_bin"
    before = rig.structure("orderS", "SHOP")
    assert before != rig.structure("nothing", "SHOP")
    assert rig.database.execute_ddl("ALTER TABLE `Orders` ADD COLUMN w INT", "sHOp", ts(1)).ignored == ""
    assert rig.structure("orderS", "SHOP") != before


@pytest.mark.parametrize("rig", CASE_COUNTS, indirect=True)
def test_the_very_name_goes_first(rig: Rig) -> None:
    """Where two names differ in case only, the one that is meant is taken."""
    for name in ("A", "a"):
        rig.server.query(f"CREATE TABLE Shop.{name} ({name * 2} INT)")
        table = TableName(schema="Shop", table=name)
        assert rig.database.describe([table])[table.folded()].columns[0].name == name * 2


def test_names_beyond_the_basic_plane_are_looked_for(rig: Rig) -> None:
    """Asking for a name that most servers can't even compare is no error, and does not hide the other tables."""
    rig.server.query("CREATE TABLE Shop.t (id INT PRIMARY KEY)")
    near, far = TableName(schema="Shop", table="t"), TableName(schema="Shop", table="😀")
    assert set(rig.database.describe([far, near])) == {near.folded()}
    if rig.server.kind == "tidb":
        rig.server.query("CREATE TABLE Shop.`😀` (id INT PRIMARY KEY)")
        assert set(rig.database.describe([far, near])) == {near.folded(), far.folded()}
    assert rig.structure("😀") == rig.structure("😀")


def test_structures_with_defaults_that_are_no_text(rig: Rig) -> None:
    """A binary default is read, and a change of it is seen."""
    rig.server.query(
        "CREATE TABLE Shop.t (id INT PRIMARY KEY, b VARBINARY(3) DEFAULT x'c3', c BIT(8) DEFAULT b'11000001')"
    )
    before = rig.structure("t")
    assert rig.database.describe([TableName(schema="Shop", table="t")])
    rig.server.query("ALTER TABLE Shop.t MODIFY b VARBINARY(3) DEFAULT x'41c3'")
    assert rig.structure("t") != before


def test_counters_are_no_structure(rig: Rig) -> None:
    """Rows move a table's counter, which is not its structure."""
    rig.server.query(
        "CREATE TABLE Shop.t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT) COMMENT 'it''s AUTO_INCREMENT=5'"
    )
    before = rig.structure("t")
    rig.server.query("INSERT INTO Shop.t VALUES (70000, 1)")
    assert rig.structure("t") == before


def test_session_of_a_statement(rig: Rig) -> None:
    """Statements run with the clock at their version, without checks of foreign keys, and without strictness."""
    definition = (
        "id INT PRIMARY KEY, at DATETIME DEFAULT CURRENT_TIMESTAMP, p INT, FOREIGN KEY (p) REFERENCES nothing (id)"
    )
    rig.database.execute_ddl(f"CREATE TABLE t ({definition})", "Shop", ts(1))
    rig.database.execute_ddl("ALTER TABLE t ADD COLUMN d DATE NOT NULL DEFAULT '0000-00-00'", "Shop", ts(2))
    with pytest.raises(DdlFailed, match="1060"):
        rig.database.execute_ddl("ALTER TABLE t ADD COLUMN d INT", "Shop", ts(3))
    assert "1050" in rig.database.execute_ddl("CREATE TABLE t (id INT)", "Shop", ts(4), frozenset({1050})).ignored


@pytest.mark.slow
def test_literals_of_the_other_half_of_the_year(rig: Rig) -> None:
    """A winter's TIMESTAMP in a summer's statement is read in the zone by its name, where the server knows it."""
    learn_zone(rig.server, "Europe/Berlin")
    rig.server.query("CREATE TABLE Shop.t (id INT PRIMARY KEY)")
    rig.server.query("INSERT INTO Shop.t VALUES (1)")
    there = TargetDatabase(Downstream(port=rig.server.port, time_zone="Europe/Berlin"), "")
    there.execute_ddl("ALTER TABLE t ADD COLUMN at TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00'", "Shop", ts(1))
    there.close()
    assert rig.server.query("SELECT UNIX_TIMESTAMP(at) FROM Shop.t") == ((1_577_833_200,),)


def test_nothing_runs(rig: Rig) -> None:
    """What has ended, or never began, is not running."""
    statement = "CREATE TABLE t (id INT PRIMARY KEY)"
    assert not rig.database.is_running(statement)
    rig.database.execute_ddl(statement, "Shop", ts(1))
    assert not rig.database.is_running(statement)


def test_keys_that_somebody_added_are_reported(rig: Rig) -> None:
    """A table has what its last statement left; one more unique key is reported until the note is taken away."""
    notes = "CREATE TABLE storage_consumer.table_keys (table_key VARCHAR(512) PRIMARY KEY, unique_keys TEXT NOT NULL)"
    rig.server.query(notes)
    name = TableName(schema="Shop", table="Orders")
    rig.server.query("CREATE TABLE Shop.Orders (id VARCHAR(9) PRIMARY KEY, v INT, UNIQUE u (v))")
    rig.database.remember([name, TableName(schema="Shop", table="")])
    assert rig.database.describe([name])[name.folded()].key_drift == ""
    rig.server.query("ALTER TABLE Shop.Orders ADD UNIQUE mine (v, id)")
    assert rig.database.describe([name])[name.folded()].key_drift == "unique key over `id`, `v`"
    rig.database.forget([name])
    assert rig.database.describe([name])[name.folded()].key_drift == ""


def test_names_of_parts(rig: Rig) -> None:
    """Of a statement only what matters for it is asked: foreign keys, and texts with fractions that become integers."""
    rig.server.query("CREATE TABLE Shop.p (id INT PRIMARY KEY)")
    for table in ("a", "b"):
        rig.server.query(
            f"CREATE TABLE Shop.{table} (id INT PRIMARY KEY, s VARCHAR(9), CONSTRAINT fk_{table} FOREIGN KEY (id) REFERENCES p (id))"
        )
    rig.server.query("INSERT INTO Shop.p VALUES (1), (2)")
    rig.server.query("INSERT INTO Shop.a VALUES (1, '4.6')")
    rig.server.query("INSERT INTO Shop.b VALUES (1, '-7'), (2, '1.00')")
    rig.server.query("CREATE TABLE Shop.c (s VARCHAR(9))")
    rig.server.query("INSERT INTO Shop.c VALUES ('e5'), ('1e2')")
    query = "ALTER TABLE `x` DROP FOREIGN KEY `y`, MODIFY COLUMN `s` INT"
    a, b = (rig.database.part_names(TableName(schema="Shop", table=table), tokens(query)) for table in ("a", "b"))
    assert (a.columns, a.foreign_keys, a.other_foreign_keys) == (
        frozenset({"id", "s"}),
        frozenset({"fk_a"}),
        frozenset({"fk_b"}),
    )
    assert (a.fractions, b.fractions) == (frozenset({"s"}), frozenset())
    assert rig.database.part_names(TableName(schema="Shop", table="c"), tokens(query)).fractions == {"s"}
    assert rig.database.part_names(TableName(schema="Shop", table="a")).foreign_keys == frozenset()


def test_partitions_with_other_rows(rig: Rig) -> None:
    """By KEY, or by HASH where a value is NULL, rows are elsewhere than at the source; this is asked where rows are taken."""
    methods = {
        "k": "KEY (v)",
        "h": "HASH (v)",
        "n": "HASH (v % 7)",
        "r": "RANGE (v) (PARTITION p0 VALUES LESS THAN MAXVALUE)",
    }
    for table, method in methods.items():
        rig.server.query(f"CREATE TABLE Shop.`{table}%s` (v INT) PARTITION BY {method}")
        rig.server.query(f"INSERT INTO Shop.`{table}%s` VALUES (1){', (NULL)' if table in 'nr' else ''}")
    for query in ("ALTER TABLE `t` TRUNCATE PARTITION `p0`", "ALTER TABLE `t` REMOVE PARTITIONING, ADD INDEX (`v`)"):
        names = (TableName(schema="Shop", table=f"{table}%s") for table in methods)
        found = [rig.database.part_names(name, tokens(query)).scattered for name in names]
        assert found == ([True, False, True, False] if "TRUNCATE" in query else [False] * 4)


def test_table_with_a_percent_sign(rig: Rig) -> None:
    """What looks like a placeholder in a name is a part of the name, in what is asked before texts become integers too."""
    rig.server.query("CREATE TABLE Shop.`a%s` (id INT PRIMARY KEY, `b%d` VARCHAR(9))")
    rig.server.query("INSERT INTO Shop.`a%s` VALUES (1, '4.6')")
    assert rig.database.has_rows(TableName(schema="Shop", table="a%s"))
    query = tokens("ALTER TABLE `a%s` MODIFY COLUMN `b%d` INT")
    assert rig.database.part_names(TableName(schema="Shop", table="a%s"), query).fractions == frozenset({"b%d"})


def test_server_that_takes_no_writes_is_no_fault_of_a_statement(mariadb: DatabaseServer) -> None:
    """A DDL that a read-only server refuses is tried again when it is over: its table does not halt."""
    mariadb.query("CREATE DATABASE storage_consumer")
    mariadb.query("CREATE USER IF NOT EXISTS plain")
    mariadb.query("GRANT ALL ON storage_consumer.* TO plain")
    database = TargetDatabase(Downstream(port=mariadb.port, user="plain"), "")
    mariadb.query("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(TargetUnavailable, match="read-only"):
            database.execute_ddl("CREATE TABLE t (id INT)", "storage_consumer", ts(1))
    finally:
        mariadb.query("SET GLOBAL read_only = 0")
    assert database.execute_ddl("CREATE TABLE t (id INT)", "storage_consumer", ts(1)).ignored == ""
    database.close()
