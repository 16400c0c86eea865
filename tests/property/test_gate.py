"""The gate against mixtures: TiDB's own statements with pieces of hostile ones anywhere in them."""

from __future__ import annotations

import random

import pytest

from storage_consumer.errors import NotReplicable, StatementRefused
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.sql.gate import refuse_foreign
from storage_consumer.sql.tokens import pieces, tokens
from tests.unit.sql.table_of_halts import HALTS
from tests.unit.sql.table_of_statements import PASSES

MIXTURES = 4_000
JUNK = (
    *(
        ";",
        "'",
        '"',
        "`",
        "/*",
        "*/",
        "/*!50000 ",
        "/*M! ",
        "/*T! ",
        "-- ",
        "#",
        "\\",
        "\n",
        "\0",
        "@",
        "(",
        ")",
        ",",
        ".",
        "=",
        "?",
        ":=",
        "{",
    ),
    *(
        "SELECT",
        "INTO OUTFILE '/x'",
        "FROM",
        "UNION",
        "TABLE",
        "WITH",
        "VALUES",
        "AS",
        "LIKE",
        "SLEEP(9)",
        "LOAD_FILE('/x')",
        "`f`(1)",
        "x.f(1)",
    ),
    *(
        "DISCARD TABLESPACE",
        "RENAME TO `other`.`u`",
        "EXCHANGE PARTITION `p` WITH TABLE `u`",
        "DROP DATABASE `shop`",
        "; DROP TABLE `u`",
    ),
    *(
        "DEFINER = `root`@`%`",
        "PROCEDURE ANALYSE()",
        "FOR UPDATE",
        "@@version",
        "mysql.user",
        "REMOVE PARTITIONING",
        "ENGINE = FEDERATED",
    ),
)
RESERVED = frozenset(
    (
        "INTO",
        "OUTFILE",
        "DUMPFILE",
        "PROCEDURE",
        "GRANT",
        "CALL",
        "LOAD",
        "DELETE",
        "UPDATE",
        "DISCARD",
        "SELECT",
        "UNION",
    )
)
"""Words that do something else than TiDB's DDL, where they stand alone."""
CALLED = frozenset(("SLEEP", "LOAD_FILE", "GET_LOCK", "BENCHMARK", "SETVAL", "F"))
PLAIN = (
    *(
        f"/* {what} is not supported */"
        for what in ("TableOptionPackKeys", "TableOptionStatsPersistent", "AlterTableForce")
    ),
    "/*+ USE_INDEX(`a` ) MAX_EXECUTION_TIME(1000)*/",
)
"""Comments that TiDB's restorer writes, and a hint of a view."""
FIRST = frozenset(("ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE", "RECOVER", "FLASHBACK"))


def statements(text: str) -> list[tuple[int, str]]:
    """Type and statement of each line."""
    lines = (line.partition(" | ") for line in text.strip("\n").split("\n"))
    return [(int(kind), query) for kind, _, query in lines]


def mixed(dice: random.Random, query: str, others: list[str]) -> str:
    """The statement with one to three pieces put in, cut out or appended."""
    for _ in range(dice.choice((1, 1, 2, 3))):
        cuts = [start for _, start, _ in pieces(query)] + [len(query)]
        at, end = sorted((dice.choice(cuts), dice.choice(cuts)))
        piece = dice.choice(JUNK) if dice.random() < 0.8 else dice.choice(others)
        kind = dice.random()
        if kind < 0.6:
            query = f"{query[:at]} {piece} {query[at:]}"
        elif kind < 0.8:
            query = f"{query[:at]}{query[end:]}"
        else:
            query = dice.choice((f"{piece} {query}", f"{query} {piece}", f"{query[:at]}{piece}{query[end:]}"))
    return query


def harm(query: str) -> str:
    """What a statement has that may do harm, as any server would see it; empty for nothing."""
    bare = query.replace("/*T!", "    ").replace("/*T![", "     ")
    for text in (query, bare):
        found = tokens(text)
        if not found or found[0].upper not in FIRST:
            return "another kind"
        view = any(token.upper == "VIEW" for token in found[:12])
        for at, token in enumerate(found):
            before, following = found[at - 1].upper if at else "", found[at + 1].text if at + 1 < len(found) else ""
            if token.kind == "symbol" and token.text in ";@?:{\\'\"`":
                return token.text
            allowed = before in ("ON", ".", "COMMIT") or (token.upper in ("SELECT", "UNION") and view)
            allowed |= token.upper in ("INTO", "UPDATE") and "PARTITION" in (t.upper for t in found)
            allowed |= token.upper == "UNION" and following.upper() not in ("SELECT", "ALL", "DISTINCT")  # an option
            if token.upper in RESERVED and not allowed:
                return token.text
            is_index = before in ("KEY", "INDEX", "UNIQUE", "EXISTS")
            if token.upper in CALLED and following == "(" and not is_index:
                return token.text
    comments = [query[start:end] for kind, start, end in pieces(query) if kind == "comment"]
    return next((comment for comment in comments if not comment.startswith("/*T!") and comment not in PLAIN), "")


@pytest.mark.parametrize("seed", range(3))
def test_mixtures(seed: int) -> None:
    """What passes has nothing in it that a server might take for something else than TiDB's DDL about this table."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    good, others = statements(PASSES), [query for text in HALTS.values() for _, query in statements(text)]
    passed = 0
    for _ in range(MIXTURES):
        kind, query = dice.choice(good)
        text = mixed(dice, query, others)
        name = TableName(schema="shop", table="t")
        file = TableDefinition(
            name=name, version=TableVersion(7), query=text, ddl_type=kind, columns=(), path="p", checksum=0
        )
        try:
            refuse_foreign(file, text, "tidb")
        except (StatementRefused, NotReplicable):
            continue
        passed += 1
        assert not harm(text), text
    assert passed > MIXTURES / 100
