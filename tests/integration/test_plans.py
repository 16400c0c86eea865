"""A plan is what then happens, on recorded buckets: on some of them, and at night on all that are about statements."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.corpora import THOROUGH, Corpus, CorpusSource, available, chosen
from tests.harness.plans import planned_and_run
from tests.harness.replay import Replay
from tests.harness.servers import DatabaseServer, learn_zone

pytestmark = [pytest.mark.server, pytest.mark.spark]
SOURCES = chosen(available(), workloads=("ddl_storm", "generated", "views"), variants=("csv",), archs=("classic",))
DDL = "batch_create,databases,ddl_storm,gap,generated,keys,names,partitions,views,x_defaults,x_hidden,x_zero"
"""Workloads that are about statements."""
ALL_SOURCES = chosen(available(), workloads=tuple(DDL.split(",")), variants=("csv", "json")) if THOROUGH else SOURCES


def rounds(corpus: Corpus, way: str, server: DatabaseServer, folder: Path) -> list[list[str]]:
    """Empty the server and replay a corpus; return for each round what differs from its plan."""
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    folder.mkdir(parents=True)
    replay = Replay(corpus=corpus, server=server, folder=folder)
    try:
        found = []
        for cut in corpus.cuts[-1:] if way == "whole" else corpus.cuts:
            corpus.materialise(cut, replay.bucket)
            # A program of its own for each round: a start tries halted tables again, and a plan is that of a start.
            with replay.consumer() as consumer:
                found.append(planned_and_run(consumer, server))
        return found
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("source", ALL_SOURCES, ids=str)
def test_equal_to_the_round(source: CorpusSource, server: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """Statements, reasons, skips, halts and rows are those of the round, with all statements of a bucket in one."""
    assert rounds(source.open(tmp_path), "whole", server, tmp_path / "replay") == [[]]


def test_equal_to_each_round(mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """The same at each cut, where earlier rounds left a state and rows."""
    (source,) = chosen(SOURCES, workloads=("generated",))
    found = rounds(source.open(tmp_path), "steps", mariadb, tmp_path / "replay")
    assert len(found) > 1
    assert found == [[]] * len(found)
