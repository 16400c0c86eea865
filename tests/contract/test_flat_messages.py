"""Canal's FlatMessages of `changes`, against those that TiCDC itself wrote into the same buckets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.changes.rendering import flat_messages
from storage_consumer.changes.window import FeedStatement
from tests.contract.test_feed_corpora import CORPORA
from tests.harness.corpora import CorpusSource
from tests.harness.feeds import feed_of, settings_of

WRITTEN = [each for each in CORPORA if each.workload in ("types", "x_zero") and each.variant == "json"]


def test_both_architectures_wrote_some() -> None:
    """The judge is TiCDC's own text, for all types and for zero values."""
    assert {each.workload for each in WRITTEN} == {"types", "x_zero"}


@pytest.mark.parametrize("source", WRITTEN, ids=str)
def test_messages_are_as_ticdc_writes_them(source: CorpusSource, tmp_path: Path) -> None:
    """Each field is the same, but for the time of writing and ZEROFILL, which no schema file shows."""
    corpus = source.open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    loaded = settings_of(corpus, tmp_path, tmp_path / "bucket")
    theirs = list(_written(tmp_path / "bucket"))
    line = flat_messages("canal-json", lambda: 0)
    count = 0
    for event in feed_of(loaded).events(0, corpus.cuts[-1].checkpoint_ts):
        if not isinstance(event, FeedStatement):
            count += 1
            assert (event.commit_ts, json.loads(line(event))) in theirs
    assert count


def _written(bucket: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Commit-ts and message of each row, without what differs."""
    for path in bucket.rglob("CDC*.json"):
        for text in path.read_bytes().splitlines():
            message = json.loads(text)
            types = {name: kind.removesuffix(" zerofill") for name, kind in message["mysqlType"].items()}
            commit_ts = message.pop("_tidb")["commitTs"]
            yield commit_ts, {**message, "mysqlType": types, "ts": 0}
