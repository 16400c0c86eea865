"""A bucket that some of these suites begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.small_bucket import SmallBucket, row, ts


@pytest.fixture
def bucket(tmp_path: Path) -> SmallBucket:
    """Two tables with a row each, up to tick 3."""
    found = SmallBucket(root=tmp_path / "bucket")
    found.create("d.a", "d.b")
    for table in ("d.a", "d.b"):
        found.rows(table, 1, row(table, 2, "1", '"one"'))
    found.metadata(ts(3))
    return found
