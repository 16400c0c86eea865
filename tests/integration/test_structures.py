"""Not only the rows: after each round the target's structure is the source's, and what its own kind of server makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.corpora import FIXTURES, CorpusSource, available
from tests.harness.replay import replayed
from tests.harness.servers import DatabaseServer
from tests.harness.structure_check import StructureCheck

pytestmark = [pytest.mark.server, pytest.mark.spark]
NAMES = {"classic/ddl_storm__csv", "classic/x_defaults__csv", "classic/x_hidden__csv-noterm"}
SOURCES = [source for source in available(FIXTURES) if str(source) in NAMES]
ENOUGH = 300
"""Properties that each of them has at least."""


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_structure_equals(source: CorpusSource, server: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """Columns are as the source showed them, everything else as the same statements leave it on a server of this kind."""
    structures = StructureCheck()
    replayed(source.open(tmp_path / "corpus"), "steps", server, tmp_path / "replay", structures)
    assert structures.total.facts > ENOUGH
