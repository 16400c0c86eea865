"""Random histories with rows that the target refuses; ``python -m tests.campaigns refusals`` plays them by the hundred."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.campaigns.refusals import PLANTS, played
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("seed", [500, 501])
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_equal_or_in_the_quarantine(seed: int, kind: str, request: pytest.FixtureRequest) -> None:
    """After each round, whoever crashed or retried or gave rows up before, target and quarantine together are the source."""
    server: DatabaseServer = request.getfixturevalue(kind)
    counts: dict[str, int] = {}
    assert played(seed, server, 8, counts)
    assert counts["in the quarantine"] > 0


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_planted_bug_is_found(plant: str, mariadb: DatabaseServer) -> None:
    """The judge finds entries that newer rows do not take the place of, those that a TRUNCATE leaves, and those that it takes from a copy."""
    with patch.object(*PLANTS[plant]):
        assert not all(played(seed, mariadb, 8, {}) for seed in range(513, 518))
