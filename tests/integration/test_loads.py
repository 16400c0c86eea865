"""A feed that begins with an export: its rows, then the rest of the recorded bucket, equal at each later cut."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_consumer import Consumer
from storage_consumer.config.settings import Loading
from storage_consumer.plan.loads import LoadPhase
from tests.harness.corpora import FIXTURES, CorpusSource, available, chosen
from tests.harness.replay import Replay
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
HANDOVERS = FIXTURES / "exports" / "handovers.txz"
CASES = {"shop": ("sql", 2), "keyless": ("sql", 2)}
"""Workload → form of its export, and the number of the cut that it is of, from 1."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A recording, and an export of one of its cuts."""

    replay: Replay
    export: Path
    cut: int

    @contextmanager
    def consumer(self) -> Iterator[Consumer]:
        """The program, which is given the export."""
        with self.replay.consumer() as consumer:
            loading = Loading(dump=f"{self.export.as_uri()}?time-zone=UTC", start_ts=1)
            loaded = consumer._loaded
            consumer._loaded = replace(loaded, config=replace(loaded.config, loading=loading))
            yield consumer

    def goes_on(self) -> None:
        """Round by round the target is as the source was at each cut from the export's on."""
        corpus = self.replay.corpus
        with self.consumer() as consumer:
            for cut in corpus.cuts[self.cut - 1 :]:
                corpus.materialise(cut, self.replay.bucket)
                summary = self.replay.round_to(cut, consumer)
                assert summary.checkpoint == cut.checkpoint_ts


def handover(source: CorpusSource, server: DatabaseServer, folder: Path) -> Handover:
    """The export of a workload, with the checkpoint of its cut, and an empty bucket."""
    corpus = source.open(folder / "corpora")
    (folder / "replay").mkdir()
    form, number = CASES[corpus.workload]
    with tarfile.open(HANDOVERS) as tar:
        # Python 3.11.3 and older know no filter.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)  # noqa: S202 - an archive of this repository
    export = folder / corpus.workload / f"{form}-cut{number}" / "dump"
    metadata = export / "metadata"
    pos = f"Pos: {corpus.cuts[number - 1].checkpoint_ts}"
    metadata.write_text(re.sub(r"Pos: \S+", pos, metadata.read_text(encoding="utf-8")), encoding="utf-8")
    return Handover(Replay(corpus=corpus, server=server, folder=folder / "replay"), export, number)


SOURCES = chosen(available(FIXTURES), workloads=tuple(CASES), variants=("csv", "json"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", chosen(SOURCES, archs=("new",)), ids=str)
def test_an_export_and_the_rest_of_the_bucket(
    source: CorpusSource, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Tables with keys and without, on each server, by CSV and by canal-json."""
    server: DatabaseServer = request.getfixturevalue(kind)
    handover(source, server, tmp_path).goes_on()
    phases = server.query("SELECT DISTINCT phase FROM storage_consumer.table_load")
    assert phases == ((LoadPhase.DONE,),)


def test_a_program_that_ends_between_two_rounds_goes_on(
    mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path
) -> None:
    """A second program, given the same export, loads nothing again."""
    del spark
    case = handover(chosen(SOURCES, workloads=("shop",))[0], mariadb, tmp_path)
    corpus = case.replay.corpus
    first, *later = corpus.cuts[case.cut - 1 :]
    corpus.materialise(first, case.replay.bucket)
    with case.consumer() as consumer:
        case.replay.round_to(first, consumer)
    corpus.materialise(later[-1], case.replay.bucket)
    with case.consumer() as consumer:
        summary = case.replay.round_to(later[-1], consumer)
    assert summary.rows > 0
    assert len(mariadb.query("SELECT * FROM storage_consumer.table_load WHERE phase = 'done'")) == len(
        mariadb.query("SELECT * FROM storage_consumer.table_load")
    )
