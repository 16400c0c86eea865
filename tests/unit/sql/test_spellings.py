"""Each harm in each spelling is refused before anything is sent, on every server; what keeps rows elsewhere is refused or taken out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from storage_consumer.errors import TableError
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.steps import DdlStep, key_of
from storage_consumer.sql.gate import refuse_strangers, refuse_unsafe
from storage_consumer.sql.tokens import tokens
from storage_consumer.target.ddl.translate import action_for, refuse_what_may_not_run
from tests.harness.hostile_statements import HARMS, KEPT_ELSEWHERE, SPELLINGS, Harm, Hostile, hostile, some

FLAVORS = ("mariadb", "mysql", "tidb")
ELSEWHERE = frozenset(
    ("DIRECTORY", "CONNECTION", "UNION", "TABLESPACE", "MYISAM", "FEDERATED", "CONNECT", "CSV", "BLACKHOLE")
)


def sent(one: Hostile, server_type: str) -> str:
    """Return what the program would send for the statement; raise `TableError` where it refuses it, as the program does."""
    query = one.of("t", "/var/secret", "/var/folder")
    definition = TableDefinition(
        name=TableName(schema="d", table="t"),
        version=TableVersion(7),
        query=query,
        ddl_type=one.kind,
        columns=(),
        path="p.json",
        checksum=0,
    )
    step = DdlStep(table_dir="x", table_key=key_of(definition.name), definition=definition)
    Selection().refuse_reserved(definition)
    refuse_strangers(definition, {"d"})
    refuse_what_may_not_run(step, server_type)
    action = action_for(definition, server_type, "utf8mb4_bin")
    if action.statement:
        refuse_unsafe(definition, action.statement, server_type)
    return action.statement


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_harms(spelling: str) -> None:
    """No spelling brings any harm past the gate."""
    passed = {}
    for one in hostile(HARMS):
        for server_type in FLAVORS if one.spelling == spelling else ():
            try:
                passed[one.harm, server_type] = sent(one, server_type)
            except TableError:
                continue
    assert passed == {}


@pytest.mark.parametrize("server_type", ["mariadb", "mysql"])
def test_options_that_keep_rows_elsewhere(server_type: str) -> None:
    """Of those that TiDB takes without effect nothing is left in the text that is sent, in TiDB's comments neither."""
    left = {}
    for one in hostile(KEPT_ELSEWHERE):
        try:
            text = sent(one, server_type)
        except TableError:
            continue
        opened = text.replace("/*T!", "    ").replace("*/", "  ")
        if found := {token.upper for token in tokens(opened)} & ELSEWHERE:
            left[one.harm, one.spelling] = found
    assert left == {}


@pytest.mark.parametrize("harms", [HARMS, KEPT_ELSEWHERE])
def test_choice_for_servers(harms: Mapping[str, Harm]) -> None:
    """The part that runs on servers has every harm, as it is and in other spellings, and every spelling."""
    chosen = some(harms, 3)
    assert {one.harm for one in chosen} == set(harms)
    assert {one.spelling for one in chosen} == set(SPELLINGS)
