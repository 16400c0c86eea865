"""A plan is what then happens, on recorded buckets; ``python -m tests.campaigns plan`` takes all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.campaigns.plans import rounds
from tests.harness.corpora import CorpusSource, available, chosen
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark]
SOURCES = chosen(available(), workloads=("ddl_storm", "generated", "views"), variants=("csv",), archs=("classic",))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_equal_to_the_round(
    source: CorpusSource, kind: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    """Statements, reasons, skips, halts and rows are those of the round, with all statements of a bucket in one."""
    server: DatabaseServer = request.getfixturevalue(kind)
    assert rounds(source.open(tmp_path), "whole", server, tmp_path / "replay") == [[]]


def test_equal_to_each_round(mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """The same at each cut, where earlier rounds left a state and rows."""
    (source,) = chosen(SOURCES, workloads=("generated",))
    found = rounds(source.open(tmp_path), "steps", mariadb, tmp_path / "replay")
    assert len(found) > 1
    assert found == [[]] * len(found)
