"""Tables as of the cuts of recorded buckets, folded by a few lines that know of no shuffle, against what the source held."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from storage_consumer.config.load import Loaded
from storage_consumer.errors import NotReplicable, UndecodableRow
from storage_consumer.model import TableName
from tests.contract.test_feed_corpora import FEW
from tests.harness.corpora import CorpusSource, GoldenTable
from tests.harness.expectations import overwritten
from tests.harness.feeds import settings_of
from tests.harness.tables_at import Rows, found_at, golden, read_at, shown
from tests.harness.tables_in_spark import REASONS

LIKE_NULL = ("csv-tab",)
"""Variants in which a text of a table cannot be told from NULL."""


@pytest.mark.slow
@pytest.mark.parametrize("source", FEW, ids=str)
def test_equal_at_every_cut_or_refused(source: CorpusSource, tmp_path: Path) -> None:
    """Each table: equal to what the source held, or refused for one of the known reasons."""
    corpus = source.open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    loaded = settings_of(corpus, tmp_path, tmp_path / "bucket")
    lost = {name.lower() for name in overwritten(corpus)}
    tables = ((cut, table) for cut in corpus.cuts for table in corpus.golden(cut) if table.name.lower() not in lost)
    for cut, table in tables:
        found, held = _rows(loaded, table, cut.checkpoint_ts, corpus.timezone), golden(table)
        if corpus.variant in LIKE_NULL and found is not None:
            found, held = _without_nulls(found), _without_nulls(held)
        assert found in (None, held), (cut.number, table.name)


def _rows(loaded: Loaded, table: GoldenTable, commit_ts: int, zone: str) -> Rows | None:
    """What is read of a table; None where it is refused for one of the known reasons."""
    try:
        rows = read_at(found_at(loaded, TableName(schema=table.schema, table=table.table), commit_ts))
    except (NotReplicable, UndecodableRow) as fault:
        if any(re.search(reason, str(fault)) for reason in REASONS):
            return None
        raise
    return shown(rows, table, zone)


def _without_nulls(rows: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter({tuple("NULL" if value is None else value for value in row): n for row, n in rows.items()})
