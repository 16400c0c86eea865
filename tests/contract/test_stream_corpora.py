"""Recorded buckets that come file by file, in any order, to a streaming query that is killed again and again."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from storage_consumer.errors import FilesMissing, UndecodableRow
from storage_consumer.spark.source.partitions import transactions_once
from storage_consumer.spark.source.ticdc import TicdcDataSource
from tests.contract.test_feed_corpora import FEW
from tests.harness.corpora import Corpus, CorpusSource, Cut, write_at_once
from tests.harness.streams import Query

LIMITS = (ReadAllAvailable(), ReadMaxFiles(1), ReadMaxFiles(3), ReadMaxBytes(2_000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("source", FEW, ids=str)
def test_every_row_once(source: CorpusSource, seed: int, tmp_path: Path) -> None:
    """What the query wrote is what one batch over the whole bucket has, but for repeats of rows that had been given."""
    chance = random.Random(f"{source}/{seed}")  # noqa: S311 - repeatable, not secret
    corpus = source.open(tmp_path)
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    options = {
        "path": corpus.sink_uri(bucket),
        "config": str(corpus.write_config(tmp_path)),
        "tz": corpus.timezone,
    }
    query = Query(options)
    for place, cut in enumerate(corpus.cuts):
        _deliver(corpus, cut, bucket, chance, tmp_path / f"stage{place}", query)
        while _step(query, chance):
            pass
    query.die()
    while query.step():
        pass
    found = [_identity(row) for row in query.rows]
    assert max(Counter(found).values(), default=0) <= 1, "a row was given twice"
    whole = _batch(options)
    assert set(found) <= {_identity(row) for row in whole}
    assert _once(query.rows) == _once(whole)


def _deliver(corpus: Corpus, cut: Cut, bucket: Path, chance: random.Random, stage: Path, query: Query) -> None:
    """Write the files of a cut in any order, with steps of the query in between, then its checkpoint."""
    corpus.materialise(cut, stage)
    new = [path for path in stage.rglob("*") if path.is_file() and path.name != "metadata"]
    changed = [path for path in new if _differs(path, bucket / path.relative_to(stage))]
    chance.shuffle(changed)
    for path in changed:
        write_at_once(bucket / path.relative_to(stage), path.read_bytes())
        if (bucket / "metadata").exists() and not chance.randrange(6):
            _step(query, chance)
    write_at_once(bucket / "metadata", (stage / "metadata").read_bytes())
    shutil.rmtree(stage)


def _differs(path: Path, other: Path) -> bool:
    return not other.exists() or other.read_bytes() != path.read_bytes()


def _step(query: Query, chance: random.Random) -> bool:
    """Run a micro-batch; the process may be killed before it, or before it is written."""
    if not chance.randrange(4):
        query.die()
    try:
        return query.step(chance.choice(LIMITS), dies=not chance.randrange(4))
    except (FilesMissing, UndecodableRow):
        # What it needs has not come yet: the query ends, and is begun again.
        query.die()
        return False


def _batch(options: dict[str, str]) -> list[dict[str, Any]]:
    source = TicdcDataSource(options)
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["_file"], row["_row"], row["_change_type"], row["_commit_version"]


def _once(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What rows say, each delivery of a transaction counted once; statements are given as they are."""
    changes = sorted(
        (row for row in rows if row["statement"] is None), key=lambda row: tuple(row["_sequence"].values())
    )
    found = Counter[tuple[Any, ...]]()
    if changes:
        words = {"update": "update_postimage"}
        shown = [{**row, "_change_type": words.get(row["_change_type"], row["_change_type"])} for row in changes]
        table = pa.Table.from_pylist(shown)
        for part in transactions_once(iter(table.combine_chunks().to_batches()), [(0, [])]):
            found += Counter(_said(row) for row in part.to_pylist())
    return found + Counter(_said(row) for row in rows if row["statement"] is not None)


def _said(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("_commit_version", "_change_type", "database", "table", "before", "after", "statement")
    return tuple(row[name] for name in names)
