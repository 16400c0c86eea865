"""Record batches of recorded buckets: the same changes in the same order as the feed gives them one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.changes.reading import Feed, Ordered
from storage_consumer.changes.record_batches import record_batches, schema_of
from storage_consumer.changes.window import Change
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, UPDATE
from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import quote
from tests.contract.test_feed_corpora import FEW
from tests.harness.corpora import CorpusSource
from tests.harness.feeds import feed_of, settings_of

Row = tuple[int, str, str, int]
WORDS = {INSERT: "insert", UPDATE: "update_postimage"}


@pytest.mark.slow
@pytest.mark.parametrize("held_bytes", [None, 2_000])
@pytest.mark.parametrize("source", FEW, ids=str)
def test_batches_have_what_the_feed_gives(source: CorpusSource, held_bytes: int | None, tmp_path: Path) -> None:
    """Table by table, all at once and in small slices: commit-ts, kind, file and row of every change."""
    corpus = source.open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    loaded = settings_of(corpus, tmp_path, tmp_path / "bucket")
    whole: dict[TableName, list[Change]] = {}
    for event in feed_of(loaded).events(0):
        if isinstance(event, Change):
            whole.setdefault(event.structure.table.folded(), []).append(event)
    for name, changes in whole.items():
        feed = feed_of(loaded, (f"{quote(name.schema)}.{quote(name.table)}",))
        rows = [row for change in changes for row in rows_of(change)]
        found = batched(feed, held_bytes)
        if found is None:
            continue
        if len(rows) > len(changes):
            # The two halves of an update stand among the others of their kind.
            assert [(ts, kind) for ts, kind, *_ in found] == sorted((ts, kind) for ts, kind, *_ in found), name
            found, rows = sorted(found), sorted(rows)
        assert found == rows, name


def batched(feed: Feed, held_bytes: int | None) -> list[Row] | None:
    """The changes of a feed of one table, from record batches; None where a column has two types in the window, which is refused."""
    window = feed.window(0)
    ordered = feed.ordered(window)
    if held_bytes:
        ordered = Ordered(
            window=window,
            storage=ordered.storage,
            decoder=ordered.decoder,
            terminator=ordered.terminator,
            held_bytes=held_bytes,
        )
    found: list[Row] = []
    try:
        schema = schema_of(each.structure for each in window.files)
    except ConfigError as fault:
        if "in two windows" in str(fault):
            return None
        raise
    for batch in record_batches(ordered, schema, feed.protocol):
        names = ("_commit_version", "_change_type", "_file", "_row")
        found += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return found


def rows_of(change: Change) -> list[Row]:
    """What the batches have of a change: an update of a row without a key is a delete and an insert, if its old image is known."""
    kinds = [WORDS.get(change.operation, "delete")]
    if change.operation == UPDATE and change.old is not None and not change.structure.key:
        kinds = [WORDS.get(DELETE, "delete"), WORDS[INSERT]]
    return [(change.commit_ts, kind, change.file, change.row) for kind in kinds]
