"""Shuffled corpora: what is delivered in another way is still the same history."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.harness.corpora import FIXTURES, Corpus, CorpusSource
from tests.harness.shuffling import Placed, RecordedSequence, Shuffled, lines_of, sequences_of

RECORDED = ("shop/new/shop__nodes-csv", "keyless/new/keyless__json", "ddl_storm/classic/ddl_storm__csv")


@pytest.fixture(scope="module", params=RECORDED)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A recorded bucket."""
    return CorpusSource(path=FIXTURES / f"{request.param}.tar.xz").open(tmp_path_factory.mktemp("corpora"))


def dice_of(seed: int) -> random.Random:
    """Dice that fall the same way each time."""
    return random.Random(seed)  # noqa: S311 - not for secrets


def delivered(objects: list[Placed], sequence: RecordedSequence) -> list[tuple[int, bytes]]:
    """The rows of a sequence in the order of its files."""
    files = sorted(one.path for one in objects if one.path.startswith(f"{sequence.folder}/{sequence.prefix}"))
    content = {one.path: one.content for one in objects}
    return [line for path in files for line in lines_of(content[path], path.rpartition(".")[2])]


@pytest.mark.parametrize("seed", range(5))
def test_same_rows_in_the_same_order(corpus: Corpus, seed: int) -> None:
    """Each sequence has all its rows, in the order of their first delivery; what is repeated was there before."""
    objects = Shuffled(corpus=corpus, dice=dice_of(seed)).objects()
    for sequence in sequences_of(corpus, dict.fromkeys(corpus.cuts[-1].files, 0)):
        rows = [line for content in sequence.files for line in lines_of(content, sequence.kind)]
        found = delivered(objects, sequence)
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(rows))
        assert len(found) >= len(rows)


@pytest.mark.parametrize("seed", range(20))
def test_no_file_holds_two_deliveries(seed: int, tmp_path: Path) -> None:
    """What a restarted TiCDC wrote again stays in another file: equal rows of one commit ts count by the file that has most."""
    corpus = CorpusSource(path=FIXTURES / "keyless/classic/keyless__csv-restart.tar.xz").open(tmp_path)
    objects = Shuffled(corpus=corpus, dice=dice_of(seed)).objects()
    for sequence in sequences_of(corpus, dict.fromkeys(corpus.cuts[-1].files, 0)):
        most = Counter[tuple[int, bytes]]()
        for content in sequence.files:
            most |= Counter(lines_of(content, sequence.kind))
        ours = [one for one in objects if one.path.startswith(f"{sequence.folder}/{sequence.prefix}")]
        for one in (one for one in ours if one.path.endswith(sequence.kind)):
            assert Counter(lines_of(one.content, sequence.kind)) <= most


@pytest.mark.parametrize("seed", range(5))
def test_nothing_comes_too_late(corpus: Corpus, seed: int) -> None:
    """At each cut all rows that its checkpoint covers are there, and the files of a sequence have come by number."""
    objects = Shuffled(corpus=corpus, dice=dice_of(seed)).objects()
    cuts = defaultdict(list)
    for one in sorted(objects, key=lambda one: one.path):
        if "/CDC" in one.path and not one.path.endswith(".index"):
            cuts[re.sub(r"\d+\.\w+$", "", one.path)].append(one.cut)
    assert all(found == sorted(found) for found in cuts.values())
    for sequence in sequences_of(corpus, dict.fromkeys(corpus.cuts[-1].files, 0)):
        rows = {line for content in sequence.files for line in lines_of(content, sequence.kind)}
        for cut in corpus.cuts:
            there = set(delivered([one for one in objects if one.cut <= cut.number], sequence))
            assert {row for row in rows if row[0] <= cut.checkpoint_ts} <= there


@pytest.mark.parametrize("seed", range(20))
def test_schema_files_in_sequence(corpus: Corpus, seed: int) -> None:
    """A table's schema files come by version, some of them early: no statement is told before an earlier one has run."""
    objects = Shuffled(corpus=corpus, dice=dice_of(seed)).objects()
    folders = defaultdict[str, list[tuple[str, int]]](list)
    for one in objects:
        if "/meta/schema_" in one.path:
            folders[one.path.rpartition("/")[0]].append((one.path, one.cut))
    assert folders
    for files in folders.values():
        cuts = [cut for _, cut in sorted(files)]
        assert cuts == sorted(cuts)


def test_seeds_differ(corpus: Corpus) -> None:
    """A seed gives the same bucket each time, another one another."""
    made = [Shuffled(corpus=corpus, dice=dice_of(seed)).objects() for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_something_of_everything(corpus: Corpus) -> None:
    """Over some seeds rows are repeated, files delayed and indexes stale."""
    shuffles = [Shuffled(corpus=corpus, dice=dice_of(seed)) for seed in range(10)]
    for shuffle in shuffles:
        shuffle.objects()
    for what in ("repeated", "delayed", "stale"):
        assert sum(getattr(shuffle.counts, what) for shuffle in shuffles) > 0


def test_quoted_line_ends() -> None:
    """What ends a row inside quotes is part of it."""
    rows = [b'"I","a","s",7,"one\r\ntwo"', b'"I","a","s",8,"say ""x"""']
    assert lines_of(b"\r\n".join(rows) + b"\r\n", "csv") == [(7, rows[0]), (8, rows[1])]
