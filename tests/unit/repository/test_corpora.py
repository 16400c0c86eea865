"""Corpora: what a bucket holds at each cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.corpora import FIXTURES, Corpus, CorpusSource, available, chosen

SHOP = FIXTURES / "shop" / "new" / "shop__csv"


def _sizes(bucket: Path) -> dict[str, int]:
    return {path.relative_to(bucket).as_posix(): path.stat().st_size for path in bucket.rglob("*") if path.is_file()}


def test_a_cut_has_its_files_and_no_others(tmp_path: Path) -> None:
    """At every cut the bucket holds exactly the recorded objects, with their recorded sizes."""
    corpus = Corpus(SHOP)
    for cut in corpus.cuts:
        corpus.materialise(cut, tmp_path)
        assert _sizes(tmp_path) == cut.files


def test_the_last_cut_is_the_recorded_tree(tmp_path: Path) -> None:
    """After the last cut every byte is as it was recorded, metadata and index files included."""
    corpus = Corpus(SHOP)
    for cut in corpus.cuts:
        corpus.materialise(cut, tmp_path)
    recorded = {path: (SHOP / "tree" / path).read_bytes() for path in corpus.cuts[-1].files}
    assert {path: (tmp_path / path).read_bytes() for path in recorded} == recorded


def test_metadata_is_of_the_cut(tmp_path: Path) -> None:
    """An earlier cut's metadata says that cut's checkpoint, also when all later files are there."""
    corpus = Corpus(SHOP)
    corpus.materialise(corpus.cuts[-1], tmp_path)
    corpus.set_checkpoint(tmp_path, corpus.cuts[1])
    assert json.loads((tmp_path / "metadata").read_text()) == {"checkpoint-ts": corpus.cuts[1].checkpoint_ts}


def test_written_files_are_left_alone(tmp_path: Path) -> None:
    """A file that is there already is not written again, as TiCDC never does."""
    corpus = Corpus(SHOP)
    corpus.materialise(corpus.cuts[0], tmp_path)
    before = {path: (tmp_path / path).stat().st_mtime_ns for path in corpus.cuts[0].files if path.endswith(".csv")}
    corpus.materialise(corpus.cuts[1], tmp_path)
    assert {path: (tmp_path / path).stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("source", available(FIXTURES), ids=str)
def test_fixtures_say_what_they_are(source: CorpusSource, tmp_path: Path) -> None:
    """A fixture's place names its workload, variant and architecture, and each cut has a golden."""
    corpus = source.open(tmp_path)
    assert (corpus.workload, corpus.variant, corpus.arch) == (source.workload, source.variant, source.arch)
    assert all(table.path.exists() for cut in corpus.cuts for table in corpus.golden(cut))


def test_all_workloads_are_among_the_fixtures() -> None:
    """Every workload and variant has a fixture, and shop is there in both formats from both architectures."""
    fixtures = available(FIXTURES)
    assert len({source.workload for source in fixtures}) == 19
    assert len({source.variant for source in fixtures}) == 37
    assert len(chosen(fixtures, workloads=("shop",), variants=("csv", "json"))) == 4
