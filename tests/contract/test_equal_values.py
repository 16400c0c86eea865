"""Pairs of values that a target may find equal, by the real path on every server; see `tests.campaigns.equal_values` for many more."""

from __future__ import annotations

import random

import pytest

from tests.harness.equal_values import HOW, KEYS, Pairs, pairs
from tests.harness.servers import KINDS, DatabaseServer

COUNT = 25
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
@pytest.mark.parametrize("collation", EQUAL)
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_goes_without_a_word(kind: str, collation: str, request: pytest.FixtureRequest) -> None:
    """Of each pair the target has both, or has one and the other was reported, by each kind of key and each way to write."""
    server: DatabaseServer = request.getfixturevalue(kind)
    said = 0
    for key in KEYS:
        with Pairs(server, collation, key) as made:
            for how in HOW:
                chance = random.Random(f"{collation} {key} {how}")  # noqa: S311 - data, not a secret
                found = made.run(pairs(collation, chance, COUNT, key), how)
                assert found.lost == [], (key, how)
                assert found.kept + found.said == COUNT
                said += found.said
    assert bool(said) == EQUAL[collation]
