"""Names as a target spells them, on servers that tell names apart by case."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.model import TableName
from storage_consumer.target.database import TargetDatabase
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server


def name(text: str) -> TableName:
    """``schema.table`` or ``schema``."""
    schema, _, table = text.partition(".")
    return TableName(schema=schema, table=table)


@pytest.fixture
def target(mariadb: DatabaseServer) -> Iterator[TargetDatabase]:
    """A server with two databases and tables of mixed case."""
    for statement in (
        "CREATE DATABASE `Camel Case`",
        "CREATE DATABASE other",
        "CREATE TABLE `Camel Case`.`Mixed'Ä` (id INT)",
        "CREATE TABLE other.t (id INT)",
        "CREATE TABLE other.T (id INT)",
        "CREATE VIEW other.`View` AS SELECT id FROM other.t",
    ):
        mariadb.query(statement)
    database = TargetDatabase(Downstream(port=mariadb.port), "")
    yield database
    database.close()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("camel case", "Camel Case"),
        ("CAMEL CASE.mixed'ä", "Camel Case.Mixed'Ä"),
        ("Camel Case.Mixed'Ä", "Camel Case.Mixed'Ä"),
        ("other.t", "other.t"),
        ("other.T", "other.T"),
        ("OTHER.VIEW", "other.View"),
        ("other.absent", None),
        ("absent.t", None),
        ("other.😀", None),
    ],
)
def test_existing(target: TargetDatabase, wanted: str, found: str | None) -> None:
    """A name is found in any case, the one that is spelled alike before others; what is not there is left out (D19)."""
    expected = {} if found is None else {name(wanted).folded(): name(found)}
    assert target.existing([name(wanted)]) == expected


def test_described_in_another_case(target: TargetDatabase) -> None:
    """A table's structure is found by its name in another case, and carries the target's spelling."""
    found = target.describe([name("camel case.MIXED'Ä")])
    assert [str(table.name) for table in found.values()] == ["Camel Case.Mixed'Ä"]
