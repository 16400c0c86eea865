"""A statement that TiCDC wrote anew leaves what the typed one leaves on a server that has the source's defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_consumer.config.settings import Downstream
from storage_consumer.model import TableColumn, TableDefinition, TableName, TableVersion
from storage_consumer.target.database import TargetDatabase
from storage_consumer.target.ddl.translate import action_for
from tests.harness.reference import moments
from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import ts
from tests.harness.structures import Structure, structure_of

pytestmark = pytest.mark.server
T = TableName(schema="shop", table="t")
MORNING = TableColumn(name="at", type="TIMESTAMP", default="2024-01-01 05:00:00")
STORIES = {
    "backslashes": [
        (
            (r"create table t (id int primary key comment 'c\\d', e enum('a\\b','\\','it''s') default 'a\\b', s set('\\n'), "
            r"index i (e) comment 'i\\') comment 'tab\\le'"),
            (r"CREATE TABLE `t` (`id` INT PRIMARY KEY COMMENT 'c\\d',`e` ENUM('a\b','\','it''s') DEFAULT _UTF8MB4'a\\b',"
            r"`s` SET('\n'),INDEX `i`(`e`) COMMENT 'i\') COMMENT = 'tab\le'"),
        ),
        (
            r"alter table t modify column s set('\\n','\'') not null, comment '\\'",
            r"ALTER TABLE `t` MODIFY COLUMN `s` SET('\n','''') NOT NULL, COMMENT = '\'",
        ),
        (
            r"create unique index u on t (s) comment '\\n'",
            r"CREATE UNIQUE INDEX `u` ON `t` (`s`) COMMENT '\n'",
        ),
    ],
    "partition comments": [
        (
            r"create table t (id int primary key) partition by range (id) (partition p values less than (9) comment 'p\\q')",
            (r"CREATE TABLE `t` (`id` INT PRIMARY KEY) PARTITION BY RANGE (`id`) "
            r"(PARTITION `p` VALUES LESS THAN (9) COMMENT = 'p\q')"),
        )
    ],
    "zones": [
        (
            "create table t (id int primary key, at timestamp default '2024-01-01 13:00:00', b datetime default '2024-01-01')",
            ("CREATE TABLE `t` (`id` INT PRIMARY KEY,`at` TIMESTAMP DEFAULT _UTF8MB4'2024-01-01 13:00:00',"
            "`b` DATETIME DEFAULT _UTF8MB4'2024-01-01')"),
        ),
        (
            "alter table t alter column at set default '2024-01-01 13:00:00'",
            "ALTER TABLE `t` ALTER COLUMN `at` SET DEFAULT _UTF8MB4'2024-01-01 13:00:00'",
        ),
    ],
    "strings": [
        ("create table t (id int primary key, a int)", "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT)"),
        (
            "alter table t add column g varchar(9) as (if(cast(a as char) = 'A', 'x', 'y')) virtual",
            ("ALTER TABLE `t` ADD COLUMN `g` VARCHAR(9) GENERATED ALWAYS AS(IF(CAST(`a` AS CHAR)=_UTF8MB4'A', _UTF8MB4'x', "
            "_UTF8MB4'y')) VIRTUAL"),
        ),
        (
            "create view v as select 'k' as k, 'a' = 'A' as same, concat(a, 'b') as c from t",
            ("CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW `v` AS "
            "SELECT _UTF8MB4'k' AS `k`,_UTF8MB4'a'=_UTF8MB4'A' AS `same`,CONCAT(`a`, _UTF8MB4'b') AS `c` FROM `t`"),
        ),
    ],
    "attributes": [
        (
            ("create table t (id bigint unsigned not null auto_increment, n int(5) zerofill, d decimal(8,2) unsigned default 1.5, "
            "u timestamp(3) null default current_timestamp(3) on update current_timestamp(3), j json, b bit(4) default b'101', "
            "y year default 2024, x binary(3) default 'a', s varchar(9) not null default '' collate utf8mb4_general_ci, "
            "primary key (id), unique (n, d), key k (s(3) desc)) auto_increment = 5"),
            ("CREATE TABLE `t` (`id` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,`n` INT(5) UNSIGNED ZEROFILL,"
            "`d` DECIMAL(8,2) UNSIGNED DEFAULT 1.5,`u` TIMESTAMP(3) NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE "
            "CURRENT_TIMESTAMP(3),`j` JSON,`b` BIT(4) DEFAULT b'101',`y` YEAR DEFAULT 2024,`x` BINARY(3) DEFAULT _UTF8MB4'a',"
            "`s` VARCHAR(9) COLLATE utf8mb4_general_ci NOT NULL DEFAULT _UTF8MB4'',PRIMARY KEY(`id`),UNIQUE(`n`, `d`),"
            "INDEX `k`(`s`(3) DESC)) AUTO_INCREMENT = 5"),
        ),
        ("alter table t alter column y drop default", "ALTER TABLE `t` ALTER COLUMN `y` DROP DEFAULT"),
        ("alter table t rename column d to dd", "ALTER TABLE `t` RENAME COLUMN `d` TO `dd`"),
    ],
}  # fmt: skip


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Each kind of server in turn."""
    found: DatabaseServer = request.getfixturevalue(request.param)
    yield found
    found.drop_all()


@pytest.mark.parametrize("story", STORIES)
def test_restored_is_typed(server: DatabaseServer, story: str) -> None:
    """The structure is the same, whatever the restoring lost."""
    typed = "".join(f"{text};\n" for text, _ in STORIES[story])
    start = "create database shop;\nuse shop;\nset time_zone = '+08:00';\n"
    expected = moments(server, start + typed)[-1]
    assert not expected.refused
    server.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    server.query("CREATE DATABASE storage_consumer")
    play(server, [text for _, text in STORIES[story]])
    assert plain(structure_of(server)) == plain(expected.structure)


def plain(structure: Structure) -> dict[str, str]:
    """Facts by their names, for a readable difference."""
    return {str(fact): value for fact, value in structure.items()}


def play(server: DatabaseServer, statements: list[str]) -> None:
    """Run statements of one table as they are stored, in a session whose zone is not the source's."""
    database = TargetDatabase(Downstream(port=server.port, time_zone="+03:00"), "")
    server_type = database.server_info().server_type
    for number, query in enumerate(statements):
        definition = TableDefinition(
            name=T,
            version=TableVersion(ts(number + 1)),
            query=query,
            ddl_type=5,
            columns=(MORNING,),
            path="t/x",
            checksum=1,
        )
        action = action_for(definition, server_type, "utf8mb4_bin", database.part_names(T), zone="+03:00")
        assert database.execute_ddl(action.statement, action.schema, definition.version).ignored == ""
    database.close()
