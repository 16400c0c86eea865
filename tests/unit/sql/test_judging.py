"""Which statements of schema files may run: a table of them, and all that was recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.errors import NotReplicable, StatementRefused, TableError
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.sql.gate import refuse_foreign, refuse_unsafe
from storage_consumer.target.ddl.translate import action_for, escaped, refuse_what_may_not_run
from tests.harness.seeds import corpus_files
from tests.unit.sql.table_of_halts import DATABASE_HALTS, HALTS
from tests.unit.sql.table_of_statements import DATABASE_PASSES, PASSES


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Type and statement of each line."""
    for line in text.strip("\n").split("\n"):
        kind, _, query = line.partition(" | ")
        yield int(kind), query


def file(kind: int, query: str, table: str = "t") -> TableDefinition:
    """A schema file of shop.t, or of the database."""
    name = TableName(schema="shop", table=table)
    return TableDefinition(
        name=name, version=TableVersion(7), query=query, ddl_type=kind, columns=(), path="p.json", checksum=0
    )


@pytest.mark.parametrize(("kind", "query"), [*lines(PASSES)])
def test_statements_that_pass(kind: int, query: str) -> None:
    """TiDB's own statements run on every server, in TiDB's comments too."""
    for server_type in ("mariadb", "mysql", "tidb"):
        refuse_foreign(file(kind, query), query, server_type)


@pytest.mark.parametrize(("kind", "query"), [*lines(DATABASE_PASSES)])
def test_statements_about_a_database_that_pass(kind: int, query: str) -> None:
    """Those of its own schema files."""
    refuse_foreign(file(kind, query, ""), query, "tidb")


@pytest.mark.parametrize(
    ("reason", "kind", "query"), [(reason, *line) for reason, text in HALTS.items() for line in lines(text)]
)
def test_statements_that_halt(reason: str, kind: int, query: str) -> None:
    """Anything else halts its table, told with the file, the reason and the statement."""
    # Where TiDB may have it, the reason does not say that TiCDC stores none like it.
    ours = "DEFINER" in query
    with pytest.raises(NotReplicable if ours else StatementRefused) as caught:
        refuse_foreign(file(kind, query), query, "tidb")
    assert reason in str(caught.value)
    assert "shop.t: the DDL with version 7 (p.json) was not run" in str(caught.value)
    assert query[:200] in str(caught.value)


@pytest.mark.parametrize(("kind", "query"), [*lines(DATABASE_HALTS)])
def test_statements_about_a_database_that_halt(kind: int, query: str) -> None:
    """So do those of a database's files."""
    with pytest.raises(StatementRefused):
        refuse_foreign(file(kind, query, ""), query, "tidb")


def test_the_table_is_long() -> None:
    """It has at least 150 lines."""
    assert sum(len([*lines(text)]) for text in (PASSES, DATABASE_PASSES, *HALTS.values(), DATABASE_HALTS)) >= 250


@pytest.mark.parametrize(
    ("feature", "query"),
    [
        *((name, f"CREATE TABLE `t` (`id` INT) /*T![{name}] X = 1 */") for name in ("storage_class", "split_region")),
        ("later", "ALTER TABLE `t` /*T![ttl,later] REMOVE TTL */"),
        ("", "ALTER TABLE `t` /*T![] SHARD_ROW_ID_BITS = 4 */"),
        ("x", "ALTER TABLE `t` ADD COLUMN `a` INT /*T![x] , RENAME TO `other`.`u` */"),
        ("bogus", "ALTER TABLE /*T![bogus] `shop`.`t` RENAME COLUMN `id` TO */ /*T! `other`. */ `t` COMMENT 'x'"),
    ],
)
def test_features_that_are_unknown(feature: str, query: str) -> None:
    """A later TiDB may have the feature of a comment: the table halts with its name, and it is not said that TiCDC stores none."""
    with pytest.raises(NotReplicable, match=rf"feature \[{feature}\], which this program does not know") as caught:
        refuse_foreign(file(61, query), query, "mysql")
    assert "TiCDC does not store" not in str(caught.value)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\x0b", "\x1c", "\0", "\x7f"])
def test_white_space_that_servers_read_in_different_ways(space: str) -> None:
    """It is none of TiDB's."""
    query = f"ALTER TABLE `t` ADD COLUMN{space}`a` INT"
    with pytest.raises(StatementRefused):
        refuse_foreign(file(5, query), query, "tidb")


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE `t` (`id` INT) ENGINE = FEDERATED",
        "CREATE TABLE `t` (`id` INT) ENGINE CONNECT",
        "CREATE TABLE `t` (`id` INT) CONNECTION = 'mysql://x'",
        "CREATE TABLE `t` (`id` INT) DATA DIRECTORY = '/x'",
        "CREATE TABLE `t` (`id` INT) TABLESPACE = `x`",
        "CREATE TABLE `t` (`id` INT) UNION = (`u`)",
        "CREATE TABLE `t` (`id` INT) PARTITION BY HASH (`id`) (PARTITION `p` ENGINE = BLACKHOLE)",
        "ALTER TABLE `t` ENGINE = 'SPIDER'",
        "DROP TABLE `other`.`u`",
        "CREATE SEQUENCE `s`",
    ],
)
def test_text_that_is_not_sent(query: str) -> None:
    """Options that a server other than TiDB keeps rows elsewhere by must be gone from the text that is sent."""
    with pytest.raises(StatementRefused):
        refuse_unsafe(file(3, query), query, "mariadb")


def test_names_that_only_the_server_reads() -> None:
    """Where the text that is sent names other tables than the stored one, it halts."""
    stored = (
        r"CREATE VIEW `t` AS SELECT 1 FROM `k` JOIN `k` AS `y` ON `y`.`a` = '\' JOIN `other`.`secret` ON 'x' <> ' '"
    )
    sent = stored.replace("\\", "\\\\")
    refuse_foreign(file(21, sent), sent, "mysql")
    with pytest.raises(StatementRefused, match="other table names"):
        refuse_foreign(file(21, stored), sent, "mysql")
    with pytest.raises(StatementRefused, match=r"other\.secret, which the stored text does not"):
        refuse_unsafe(file(21, stored), sent, "mysql")


@pytest.mark.parametrize("head", ["VIEW", "OR REPLACE VIEW", "ALGORITHM = MERGE VIEW", "SQL SECURITY INVOKER VIEW"])
def test_backslashes_of_a_view(head: str) -> None:
    """They stay, whatever its columns are called."""
    query = rf"CREATE {head} `t` AS SELECT 1 FROM `k` AS `x` WHERE `x`.comment = '\n'"
    assert escaped(query) == query


def test_objects_of_tidb_alone() -> None:
    """They are not run elsewhere, so that they pass there; on TiDB they are none of this feed's tables."""
    for query in ("CREATE SEQUENCE `s`", "ALTER PLACEMENT POLICY `p` FOLLOWERS = 1", "DROP RESOURCE GROUP `g`"):
        refuse_foreign(file(0, query, ""), query, "mysql")
        with pytest.raises(StatementRefused):
            refuse_foreign(file(0, query, ""), query, "tidb")
    with pytest.raises(StatementRefused):
        refuse_foreign(file(0, "x", ""), "CREATE SEQUENCE `s`; DROP DATABASE `x`", "mysql")


def run_as_recorded(step: DdlStep, server_type: str) -> None:
    """Raise for a statement that does not pass the gate, as it was recorded and as it is sent."""
    refuse_what_may_not_run(step, server_type)
    action = action_for(step.definition, server_type, "utf8mb4_bin")
    if action.statement:
        refuse_unsafe(step.definition, action.statement, server_type)


def test_everything_that_was_recorded_passes() -> None:
    """No statement of the corpora halts on any server, as it is stored and as it is sent, but one name that only TiDB can have."""
    seen, refused = set(), set()
    for path, content in corpus_files(r".*/schema[^/]*\.json", limit=1_000_000):
        if b'"Query": ""' in content or b'"TableVersion"' not in content:
            continue
        version = int(content.split(b'"TableVersion":')[1].split(b",")[0].strip(b' "'))
        definition = parse_schema_file(content, path, version, None, "unknown")
        if not definition.is_ddl or (definition.name, definition.query) in seen:
            continue
        seen.add((definition.name, definition.query))
        step = DdlStep(table_dir="x", table_key=key_of(definition.name), definition=definition)
        for server_type in ("mariadb", "mysql", "tidb"):
            try:
                run_as_recorded(step, server_type)
            except TableError:
                refused.add((str(definition.name), server_type))
    assert len(seen) > 50
    assert refused <= {("names.\N{GRINNING FACE}", "mariadb"), ("names.\N{GRINNING FACE}", "mysql")}
