"""What --skip-commit-ts leaves out of real tables with further unique keys, and keys that are compared by a collation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.servers import KINDS, DatabaseServer
from tests.harness.small_bucket import SmallBucket, ts
from tests.integration.rounds import once
from tests.integration.test_equal_values import change, names, table

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize("key", ["primary", "unique", "composite"])
@pytest.mark.parametrize("kind", KINDS)
def test_row_that_stayed(request: pytest.FixtureRequest, tmp_path: Path, kind: str, key: str) -> None:
    """A row whose delete was left out gives way to the same row again, and to no other one: that halts the table, and names both."""
    server: DatabaseServer = request.getfixturevalue(kind)
    bucket = SmallBucket(root=tmp_path)
    table(bucket, key)
    bucket.rows("d.t", 1, change(key, 2, 1, "a"), change(key, 2, 2, "b"))
    bucket.rows("d.t", 2, *(change(key, 5, number, name, "D") for number, name in ((1, "a"), (2, "b"))))
    bucket.metadata(ts(6))
    given = {"skip_commit_ts": f"d.t:{ts(5)}", "tz": "UTC"}
    assert once(bucket, server, **given).skipped == {"row: left out by --skip-commit-ts": 2}
    assert names(server) == [(1, "a"), (2, "b")]
    # The same key, with another value beside it where it is the number.
    bucket.rows("d.t", 3, change(key, 7, 1, "a" if key == "primary" else "c"))
    bucket.metadata(ts(8))
    assert once(bucket, server, **given).halted == ()
    assert names(server) == [(1, "a" if key == "primary" else "c"), (2, "b")]
    bucket.rows("d.t", 4, change(key, 9, 3, "B"))
    bucket.metadata(ts(10))
    (halted,) = once(bucket, server, **given).halted
    assert "was not written, for the target holds the row with" in halted.error
    assert names(server) == [(1, "a" if key == "primary" else "c"), (2, "b")]
