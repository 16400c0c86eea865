"""Tables as of a commit-ts that are older than the bucket: an export is their base."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.small_bucket import SmallBucket, ts
from tests.harness.small_export import export
from tests.unit.spark.test_table_at import OLD, PAIR, at

BODY = "  `a` int DEFAULT NULL,\n  `b` int DEFAULT NULL"


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """An empty bucket that is complete up to tick 9."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.metadata(ts(9))
    found.write("old.toml", OLD)
    return found


def test_equal_rows_in_several_files(tmp_path: Path, bucket: SmallBucket) -> None:
    """An export repeats nothing: rows without a key are as many as its files have."""
    bucket.schema("d.t", ts(1), "", 0, PAIR)
    base = export(tmp_path / "export", 2, {"t": ["(1,7),\n(1,7)"] * 4}, body=BODY)
    assert at(bucket, "d.t", base=base.as_uri(), config=str(bucket.root / "old.toml")) == [(1, 7)] * 8
