"""Pairs of values that a target may find equal, by the real path on every server: some, and at night many of every collation of TiDB 8.5."""

from __future__ import annotations

import random

import pymysql.err
import pytest

from storage_consumer.errors import NotReplicable
from tests.harness.corpora import THOROUGH
from tests.harness.equal_values import COLLATIONS, HOW, KEYS, Pairs, pairs
from tests.harness.servers import DatabaseServer

COUNT = 1_000 if THOROUGH else 25
"""Pairs by each kind of key and each way to write."""
EQUAL = {
    "ascii_bin": True,
    "utf8mb4_unicode_ci": True,
    "utf8mb4_0900_ai_ci": True,
    "gbk_chinese_ci": True,
    "utf8mb4_0900_bin": False,
}
"""Collation → whether its name finds texts equal that differ in their bytes."""


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("collation", COLLATIONS if THOROUGH else EQUAL)
def test_no_row_goes_without_a_word(server: DatabaseServer, collation: str) -> None:
    """Of each pair the target has both, or has one and the other was reported, by each kind of key and each way to write."""
    said = 0
    for key in KEYS:
        try:
            table = Pairs(server, collation, key)
        except (NotReplicable, pymysql.err.MySQLError):
            # A server may lack a collation, and then refuses the table.
            assert collation not in EQUAL
            continue
        with table as made:
            for how in HOW:
                chance = random.Random(f"{collation} {key} {how}")  # noqa: S311 - data, not a secret
                found = made.run(pairs(collation, chance, COUNT, key), how)
                assert found.lost == [], (key, how)
                assert found.kept + found.said == COUNT
                said += found.said
    assert bool(said) == EQUAL.get(collation, bool(said))
