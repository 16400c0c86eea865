"""The main promise: after every round the target equals the source, for each recording and way of delivery."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.campaigns.corpus_table import WORKLOADS
from tests.harness.corpora import FIXTURES, THOROUGH, CorpusSource, available, chosen
from tests.harness.replay import MODES, replayed
from tests.harness.servers import KINDS, NEWER_MARIADB, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark]
SOURCES = chosen(available(), workloads=tuple(WORKLOADS.split(",")), variants=("csv", "json"))
VARIANTS = tuple(source for source in available(FIXTURES) if str(source) not in set(map(str, SOURCES)))
WAYS = tuple(
    (source, mode)
    for place, source in enumerate(SOURCES)
    for turn, mode in enumerate(MODES)
    if THOROUGH or mode == "steps" or turn == place % len(MODES)
)
"""Each recording step by step, and in turn in one other way."""
ON_OTHERS = chosen(SOURCES, workloads=("shop", "types", "text_traps", "keys"), archs=("new",))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where archived recordings are unpacked."""
    return tmp_path_factory.mktemp("corpora")


@pytest.mark.parametrize(("source", "mode"), WAYS, ids=str)
def test_equal_on_mariadb(
    source: CorpusSource, mode: str, mariadb: DatabaseServer, spark: SparkSession, scratch: Path, tmp_path: Path
) -> None:
    """On MariaDB every table equals the source at each checkpoint that was reached."""
    replayed(source.open(scratch), mode, mariadb, tmp_path / "replay")


@pytest.mark.parametrize("source", VARIANTS, ids=str)
def test_every_variant(
    source: CorpusSource, mariadb: DatabaseServer, spark: SparkSession, scratch: Path, tmp_path: Path
) -> None:
    """Whatever TiCDC was told to write, the target equals the source, and a second run changes nothing (C9, C11, D12)."""
    replayed(source.open(scratch), "again", mariadb, tmp_path / "replay")


@pytest.mark.parametrize("kind", [NEWER_MARIADB, *(kind for kind in KINDS if kind != "mariadb")])
@pytest.mark.parametrize("source", ON_OTHERS, ids=str)
def test_equal_on_other_servers(
    source: CorpusSource,
    kind: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    scratch: Path,
    tmp_path: Path,
) -> None:
    """On a newer MariaDB, on MySQL, and on TiDB where there is one, every table equals the source at each cut."""
    server: DatabaseServer = request.getfixturevalue(kind)
    replayed(source.open(scratch), "steps", server, tmp_path / "replay")


@pytest.mark.quick
@pytest.mark.parametrize("source", chosen(SOURCES, workloads=("shop",), archs=("new",)), ids=str)
def test_equal_without_local_infile(
    source: CorpusSource,
    mariadb_without_infile: DatabaseServer,
    spark: SparkSession,
    scratch: Path,
    tmp_path: Path,
) -> None:
    """A server that refuses LOAD DATA LOCAL ends with the same rows."""
    replayed(source.open(scratch), "steps", mariadb_without_infile, tmp_path / "replay")
