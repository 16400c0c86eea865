"""The same shop by other ways: from a real S3 server, and through the library as other programs use it."""

from __future__ import annotations

import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import botocore.exceptions
import pytest
from pyspark.sql import SparkSession

from storage_consumer import Consumer
from storage_consumer.config.options import Document
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.spark_session import open_session
from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.spark]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__csv")


def test_shop_over_s3_with_read_only_credentials(
    s3: S3Server, mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path
) -> None:
    """From S3 the shop arrives cut by cut with credentials that may only list and get, and the bucket stays as it was."""
    name, prefix = "shop", "deep/prefix"
    uri = s3.uri(name, prefix, s3.reader, protocol="csv")
    writer = s3.client(s3.writer)
    config = str(SHOP.write_config(tmp_path))
    with Consumer(upstream_uri=uri, downstream_uri=mariadb.uri, config=config, tz="UTC") as consumer:
        for cut in SHOP.cuts:
            SHOP.materialise(cut, tmp_path / "bucket")
            s3.upload(tmp_path / "bucket", name, prefix)
            before = keys(writer, name)
            summary = consumer.run_once()
            assert not summary.halted
            assert summary.checkpoint == cut.checkpoint_ts
            assert differences(mariadb, SHOP.golden(cut)) == ()
            assert keys(writer, name) == before
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        s3.client(s3.reader).put_object(Bucket=name, Key=f"{prefix}/new", Body=b"")


def keys(client: object, bucket: str) -> dict[str, str]:
    """All keys of a bucket with their tags."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)  # type: ignore[attr-defined] # made at run time
    return {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", ())}


def test_several_consumers_in_one_process(mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """Consumers follow one another, each with its own state, with a path or a mapping as config; the session stays the caller's."""
    bucket = tmp_path / "bucket"
    configs: tuple[Document, ...] = (str(SHOP.write_config(tmp_path)), tomllib.loads(SHOP.changefeed_toml))
    for cut, config in zip(SHOP.cuts[:2], configs, strict=True):
        SHOP.materialise(cut, bucket)
        uris = {"upstream_uri": SHOP.sink_uri(bucket), "downstream_uri": mariadb.uri, "tz": "UTC"}
        with Consumer(progress=None, config=config, **uris) as consumer:
            assert consumer.run_once().checkpoint == cut.checkpoint_ts
        assert differences(mariadb, SHOP.golden(cut)) == ()
    mariadb.drop_all()
    uris = {"upstream_uri": SHOP.sink_uri(bucket), "downstream_uri": mariadb.uri, "tz": "UTC"}
    with Consumer(progress=None, include_commit_ts=True, state_schema="mine", **uris) as consumer:
        summary = consumer.run_once()
    assert "mine" in mariadb.databases()
    assert sum(table.rows for table in summary.tables) == summary.rows > 0
    assert SparkSession.builder.getOrCreate() is spark
    assert spark.range(3).count() == 3


def test_session_of_another_thread(spark: SparkSession) -> None:
    """A session that another thread made is used as it is: Spark calls none active in this one, and ours would be set over it."""
    before = dict(spark.conf.getAll)
    with ThreadPoolExecutor(1) as pool:
        found, ours = pool.submit(open_session, Tuning()).result()
    assert found is spark
    assert not ours
    assert dict(spark.conf.getAll) == before
