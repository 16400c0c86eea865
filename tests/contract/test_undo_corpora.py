"""Windows of recorded buckets, taken back at the kind of server that they came from, against what the source held before."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer.changes.render_sql import UNDO_FOOT, UNDO_HEAD, undone
from storage_consumer.model import TableName
from storage_consumer.sql.tokens import qualified
from tests.acceptance.test_changes import piped
from tests.contract.test_feed_corpora import FEW
from tests.harness.comparing import NOT_AT_SOURCE, differences
from tests.harness.corpora import CorpusSource
from tests.harness.expectations import null_like
from tests.harness.feeds import feed_of, play, settings_of
from tests.harness.servers import KINDS, DatabaseServer

TAKEN = [
    each
    for each in FEW
    if (each.workload, each.variant) in (("types", "json"), ("types", "csv-rawold"), ("hot", "json"))
]
"""Those with values of all types, and with many changes of few rows."""

if "tidb" in KINDS:  # else there is no such server

    @pytest.mark.parametrize("source", TAKEN, ids=str)
    def test_rows_are_as_they_were(source: CorpusSource, tidb: DatabaseServer, tmp_path: Path) -> None:
        """Window by window, from the last cut to the first: each value is the one of before."""
        corpus = source.open(tmp_path)
        corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
        loaded = settings_of(corpus, tmp_path, tmp_path / "bucket")
        assert play(feed_of(loaded).events(0, corpus.cuts[-1].checkpoint_ts), loaded, tidb) == []
        zone = "+00:00" if corpus.timezone == "UTC" else corpus.timezone
        for before, after in reversed(list(zip(corpus.cuts, corpus.cuts[1:], strict=False))):
            for table in corpus.golden(before):
                feed = feed_of(loaded, (qualified(TableName(schema=table.schema, table=table.table)),))
                window = feed.window(before.checkpoint_ts, after.checkpoint_ts)
                lines = undone(window, feed.ordered(window).events(), feed.contents.definitions, feed.protocol)
                assert piped(tidb, "".join((UNDO_HEAD, *(f"{line}\n" for line in lines), UNDO_FOOT))) == ""
            found = differences(tidb, corpus.golden(before), time_zone=zone, null=null_like(corpus))
            assert [each for each in found if each.what != NOT_AT_SOURCE] == []
