"""A feed that begins with an export: its rows, then the rest of the recorded bucket, equal at each later cut."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_consumer.plan.loads import LoadPhase
from tests.harness.corpora import FIXTURES, CorpusSource, available, chosen
from tests.harness.dumps import Dump, as_parquet
from tests.harness.dumps import available as exports
from tests.harness.handover_history import History, journal_faults, of_history, recorded
from tests.harness.handovers import Handover, begun
from tests.harness.servers import DatabaseServer
from tests.harness.structure_check import StructureCheck

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]
HANDOVERS = FIXTURES / "exports" / "handovers.txz"
CASES = {"shop": ("sql", 2), "keyless": ("sql", 2)}
"""Workload → form of its export, and the number of the cut that it is of, from 1."""


EARLY = {
    "ho_add": "csv-ddl2-V-1",
    "ho_dbs": "sql-ddl5-V",
    "ho_drop": "sql-ddl1-V-1",
    "ho_modify": "csv-ddl1-V-1",
    "ho_parts": "sql-ddl3-V-1",
    "ho_tables": "sql-ddl1-V-1",
}
"""History → an export of it: right before a statement that it shows already, or right at one that it does not hold."""


def unpacked(folder: Path) -> Path:
    """The folder, with the exports of the archive in it."""
    with tarfile.open(HANDOVERS) as tar:
        # Python 3.11.3 and older know no filter.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)  # noqa: S202 - an archive of this repository
    return folder


def handover(source: CorpusSource, server: DatabaseServer, folder: Path) -> Handover:
    """The export of a workload, with the checkpoint of its cut, and an empty bucket."""
    corpus = source.open(folder / "corpora")
    form, number = CASES[corpus.workload]
    return begun(Dump(unpacked(folder) / corpus.workload / f"{form}-cut{number}"), corpus, server, folder)


SOURCES = chosen(available(FIXTURES), workloads=tuple(CASES), variants=("csv", "json"))


@pytest.mark.parametrize("source", chosen(SOURCES, archs=("new",)), ids=str)
def test_an_export_and_the_rest_of_the_bucket(source: CorpusSource, server: DatabaseServer, tmp_path: Path) -> None:
    """Tables with keys and without, on each server, by CSV and by canal-json."""
    handover(source, server, tmp_path).goes_on()
    phases = server.query("SELECT DISTINCT phase FROM storage_consumer.table_load")
    assert phases == ((LoadPhase.DONE,),)


@pytest.mark.parametrize("cloud", [False, True])
def test_an_export_as_parquet(server: DatabaseServer, tmp_path: Path, *, cloud: bool) -> None:
    """Values of all types are the source's on each server, as Dumpling and as TiDB Cloud write them."""
    (recorded_types,) = chosen(available(FIXTURES), workloads=("types",), variants=("csv",), archs=("new",))
    dumps = {dump.folder.name: dump for dump in exports(tmp_path) if dump.folder.parent.name == "types"}
    export = as_parquet(dumps["csv-r20-F1KiB-gzip"], tmp_path / "parquet", cloud=cloud)
    begun(export, recorded_types.open(tmp_path / "corpora"), server, tmp_path).goes_on()


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


@pytest.mark.parametrize("workload", EARLY)
def test_each_statement_near_the_export_takes_effect_once(
    workload: str, server: DatabaseServer, tmp_path: Path
) -> None:
    """Rows and structures are the source's at the end, and no statement ran whose effect the export holds by its TSO."""
    history = History(unpacked(tmp_path) / workload)
    dump = Dump(history.folder / EARLY[workload])
    corpus = recorded(history, server, tmp_path / "corpus")
    check = StructureCheck(against_golden=False)
    check.learn(corpus, server)
    (tmp_path / "replay").mkdir()
    of_history(history, dump, corpus, server, tmp_path / "replay", check).goes_on()
    assert not journal_faults(history, dump, server)
