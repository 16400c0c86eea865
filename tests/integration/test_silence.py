"""Whether a consumer hangs is told by the waits of what works, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage_consumer import Consumer
from storage_consumer.config.options import Options
from storage_consumer.watch.recorder import EVERY
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.server, pytest.mark.alone, pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_only_what_works_is_heard(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """The lease's renewals count as life. Once they stop, the consumer is silent, though reports go on being stored."""
    bucket = SmallBucket(root=tmp_path / "bucket")
    bucket.create("d.t")
    bucket.rows("d.t", 1, row("d.t", 5, "1", '"one"'))
    bucket.metadata(ts(9))
    options: Options = {
        "include_commit_ts": True,
        "lease_ttl": "3s",
        "upstream_uri": bucket.uri,
        "downstream_uri": mariadb.uri,
    }
    with Consumer(progress=None, **options) as consumer:
        assert consumer.silent_seconds is None
        assert not consumer.is_writer
        consumer.run_once()
        assert consumer.is_writer
        assert consumer.silent_seconds == 0.0
        service = consumer._service
        assert service is not None
        assert service._renewal is not None
        service._renewal.stop()
        wait_until("silence", lambda: (consumer.silent_seconds or 0.0) > EVERY + 1)
