"""What the integration tests share beside the servers: one Spark session, small buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.harness.local_spark import local_spark
from tests.harness.small_bucket import SmallBucket


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests; each `Consumer` finds it active."""
    with local_spark() as session:
        yield session


@pytest.fixture
def bucket(tmp_path: Path, request: pytest.FixtureRequest) -> SmallBucket:
    """An empty bucket; of the protocol that a test is parametrized with, else for CSV."""
    root = tmp_path / "bucket"
    root.mkdir()
    return SmallBucket(root=root, protocol=getattr(request, "param", "csv"))
