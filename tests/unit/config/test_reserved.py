"""Databases of the bucket whose names the target keeps for itself: nothing of them gets there, and the state stays."""

from __future__ import annotations

import pytest

from storage_consumer.config.parsers import is_system, spelling, why_reserved
from storage_consumer.config.settings import Route
from tests.harness.small_bucket import ID_NAME, row, ts
from tests.unit.driver.test_selecting import select
from tests.unit.driving import World


@pytest.mark.parametrize(
    "name",
    [
        "storage_consumer",
        "STORAGE_CONSUMER",
        "stórage_consumer",
        "\u017ftorage_consumer",
        "storage_consumer  ",
        "Storage\u00ad_consumer",
    ],
)
def test_spellings_of_one_name(name: str) -> None:
    """Case, accents, width, joiners and spaces at the end tell no names apart."""
    assert "--state-schema" in why_reserved(name, "storage_consumer")
    assert why_reserved(name, "other") == ""


@pytest.mark.parametrize(
    "name",
    ["mysql", "SYS", "\u0130nformation_Schema", "\u0131nformation_schema", "#mysql50#x", "__TiDB_BR_Temporary_a"],
)
def test_system_schemas(name: str) -> None:
    """Those of all three servers, in every spelling, and the prefixes by which they may be reached."""
    assert is_system(name)


@pytest.mark.parametrize("name", ["mysql2", "my_sql", "system", "storage_consumer_2", "information", "метрики"])
def test_other_names(name: str) -> None:
    """Names that only look alike to people are free."""
    assert why_reserved(name, "storage_consumer") == ""


def test_spelling_is_no_shorter_than_it_must_be() -> None:
    """Other letters stay apart."""
    assert len({spelling(name) for name in ("a", "b", "ø", "o", "я", "表", "")}) == 7


@pytest.mark.parametrize(
    "schema", ["storage_consumer", "Storage_Consumer", "STÓRAGE_CONSUMER", "mysql", "SYS", "tidb_cdc"]
)
def test_a_database_that_the_target_keeps_for_itself(schema: str) -> None:
    """Its tables halt before anything of them is read or run, a DROP DATABASE too; the others go on, and the state stays."""
    made = World()
    made.bucket.create("shop.a", f"{schema}.t")
    for table in ("shop.a", f"{schema}.t"):
        made.bucket.rows(table, 1, row(table, 2, "1", '"one"'))
    made.bucket.schema(schema, ts(3), f"DROP DATABASE `{schema}`", 2)
    made.bucket.rows("shop.a", 2, row("shop.a", 4, "2", '"two"'))
    made.bucket.metadata(ts(5))
    for _ in range(2):
        summary = made.once()
        assert sorted(table.table for table in summary.halted) == [schema, f"{schema}.t"]
        remedy = "--state-schema" if schema.lower().startswith("st") else "the name of a system schema"
        assert all(remedy in table.error and "--route" in table.error for table in summary.halted)
        assert [str(name) for name in made.records.structures] == ["shop.a"]
        assert [r["id"] for r in made.rows("shop.a")] == ["1", "2"]


def test_a_reserved_database_that_gets_a_route_later() -> None:
    """It starts from its own beginning: nothing that was passed over counts as applied."""
    made = World()
    made.bucket.create("shop.a", "storage_consumer.t")
    made.bucket.rows("storage_consumer.t", 1, row("storage_consumer.t", 2, "1", '"one"'))
    made.bucket.metadata(ts(5))
    assert len(made.once().halted) == 2
    select(made, routes=(Route(matcher=("storage_consumer.*",), target_schema="copy"),))
    made.bucket.metadata(ts(6))
    assert not made.once().halted
    assert [r["id"] for r in made.rows("copy.t")] == ["1"]


@pytest.mark.parametrize(
    ("route", "table"),
    [
        (Route(matcher=("*.*",), target_schema="storage_{schema}"), "consumer.t"),
        (Route(matcher=("*.*",), target_schema="{schema}_consumer"), "Storage.t"),
        (Route(matcher=("shop.*",), target_schema="{table}"), "shop.mysql"),
        (Route(matcher=("*.*",), target_schema="x", target_table="y"), ""),
    ],
)
def test_routes_that_lead_there(route: Route, table: str) -> None:
    """A template that some name fills to a reserved one halts the tables of that name."""
    made = select(World(), routes=(route,))
    made.bucket.create(table or "mysql.t")
    made.bucket.rows(table or "mysql.t", 1, row(table or "mysql.t", 2, "1", '"one"'))
    made.bucket.metadata(ts(5))
    halted = {one.table for one in made.once().halted}
    assert (table in halted) if table else not halted


@pytest.mark.parametrize(
    "query",
    [
        "RENAME TABLE `shop`.`a` TO `{db}`.`a`",
        "ALTER TABLE `a` RENAME AS `{db}`.`a`",
        "RENAME TABLE `{db}`.`leases` TO `shop`.`a`",
        "CREATE TABLE `a` LIKE `{db}`.`leases`",
        "ALTER TABLE `shop`.`a` EXCHANGE PARTITION `p` WITH TABLE `{db}`.`a`",
        "ALTER TABLE `a` ADD CONSTRAINT `f` FOREIGN KEY (`id`) REFERENCES `{db}`.`leases`(`id`)",
        "CREATE VIEW `a` AS SELECT `id` FROM (SELECT * FROM `{db}`.`leases`) AS `x`",
        "CREATE VIEW `a` AS SELECT `{db}`.`leases`.`holder` FROM `b`",
        "CREATE TABLE `{db}`.`a` (`id` INT)",
        "DROP TABLE `{db}`.`leases`",
        "TRUNCATE TABLE `{db}`.`leases`",
        "CREATE INDEX `i` ON `{db}`.`leases` (`id`)",
    ],
)
@pytest.mark.parametrize("schema", ["storage_consumer", "Storage_Consumer", "MySQL", "sys"])
def test_statements_that_name_one(query: str, schema: str) -> None:
    """A statement of another database's table that names one stops its table, whatever its place there."""
    made = World()
    made.bucket.create("shop.a")
    made.bucket.schema("shop.a", ts(3), query.format(db=schema), 5, ID_NAME)
    made.bucket.rows("shop.a", 1, row("shop.a", 4, "1", '"one"'), version=ts(3))
    made.bucket.metadata(ts(5))
    (halted,) = made.once().halted
    assert f" {schema}" in halted.error
    assert "which has the name of" in halted.error
    assert halted.table == f"{schema}.a" or "storage-consumer ddl replace" in halted.error
    assert [str(name) for name in made.records.structures] == ["shop.a"]
    assert not made.rows("shop.a")
