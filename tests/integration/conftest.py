"""What the integration tests share beside the servers and Spark: small buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.small_bucket import SmallBucket


@pytest.fixture
def bucket(tmp_path: Path, request: pytest.FixtureRequest) -> SmallBucket:
    """An empty bucket; of the protocol that a test is parametrized with, else for CSV."""
    root = tmp_path / "bucket"
    root.mkdir()
    return SmallBucket(root=root, protocol=getattr(request, "param", "csv"))
