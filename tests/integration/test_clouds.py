"""The shop from Google's and Azure's stores, as their emulators have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_consumer import Consumer
from tests.harness.azure_server import ACCOUNT, AzureServer
from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.faulty_proxy import FaultyProxy
from tests.harness.gcs_server import GcsServer
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import CONFIG, SmallBucket, row, ts
from tests.integration.rounds import content

pytestmark = [pytest.mark.server, pytest.mark.spark]
SHOP = Corpus(FIXTURES / "shop" / "new" / "shop__json")


def test_shop_over_google(gcs: GcsServer, mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """From an emulator of Google Cloud Storage the shop arrives cut by cut."""
    gcs.make_bucket("shop")
    uri = f"gs://shop/deep/prefix?endpoint={gcs.endpoint}/storage/v1/&protocol=canal-json&enable-tidb-extension=true"
    with _consumer(uri, mariadb, tmp_path) as consumer:
        for cut in SHOP.cuts:
            SHOP.materialise(cut, tmp_path / "bucket")
            gcs.upload(tmp_path / "bucket", "shop", "deep/prefix")
            summary = consumer.run_once()
            assert (summary.halted, summary.checkpoint) == ((), cut.checkpoint_ts)
            assert differences(mariadb, SHOP.golden(cut)) == ()
    with _consumer(uri, mariadb, tmp_path) as again:
        assert again.run_once().files == 0  # a later process finds each file as it was


def test_shop_over_azure(azure: AzureServer, mariadb: DatabaseServer, spark: SparkSession, tmp_path: Path) -> None:
    """From an emulator of Azure the shop arrives cut by cut, with a token that may only list and read."""
    with azure.container("shop") as client:
        client.create_container()
    parameters = {"protocol": "canal-json", "enable-tidb-extension": "true"}
    uri = azure.uri("shop", "deep/prefix", **parameters).replace("azure://", "azblob://")
    with _consumer(uri, mariadb, tmp_path) as consumer:
        for cut in SHOP.cuts:
            SHOP.materialise(cut, tmp_path / "bucket")
            azure.upload(tmp_path / "bucket", "shop", "deep/prefix")
            summary = consumer.run_once()
            assert (summary.halted, summary.checkpoint) == ((), cut.checkpoint_ts)
            assert differences(mariadb, SHOP.golden(cut)) == ()
    with _consumer(uri, mariadb, tmp_path) as again:
        assert again.run_once().files == 0  # a later process finds each file as it was


@pytest.mark.parametrize("store", ["s3", "azure"])
@pytest.mark.usefixtures("spark")
def test_what_a_rule_moved_to_an_archive(
    store: str, bucket: SmallBucket, mariadb: DatabaseServer, request: pytest.FixtureRequest
) -> None:
    """An archived file halts its table with the command that brings it back, and no other table; what is applied may be archived.

    The emulators give archived objects out, so a proxy answers as the clouds do.
    """
    server: S3Server | AzureServer = request.getfixturevalue(store)
    for table in ("d.t", "d.u"):
        bucket.create(table)
        bucket.rows(table, 1, row(table, 5, "1", '"one"'))
    bucket.metadata(ts(9))
    applied = [path.relative_to(bucket.root).as_posix() for path in bucket.root.glob("d/**/*") if path.is_file()]
    with FaultyProxy(server.endpoint.removesuffix(f"/{ACCOUNT}")) as proxy:
        if isinstance(server, S3Server):
            behind = replace(server, endpoint=proxy.endpoint)
            uri = behind.uri("archive", "feed", server.reader, protocol="csv")
        else:
            server.container("archive").create_container()
            uri = replace(server, endpoint=f"{proxy.endpoint}/{ACCOUNT}").uri("archive", "feed", protocol="csv")

        def once(*archived: str) -> tuple[dict[str, str], Sequence[object]]:
            server.upload(bucket.root, "archive", "feed")
            for path in [path for path in bucket.root.glob("d/**/*") if path.is_file()]:
                path.unlink()  # whoever archives an object leaves it as it is, and does not write it again
            shapes = (rf"/{re.escape(path)}($|\?)" for path in archived)
            proxy.spoil(_ARCHIVED[store][0], only="|".join(shapes) or "no such path")
            with Consumer(upstream_uri=uri, downstream_uri=mariadb.uri, config=CONFIG, once=True) as running:
                summary = running.run_once()
            return {each.table: each.error for each in summary.halted}, content(mariadb, "d.t")

        data = bucket.file("d.t", 1).relative_to(bucket.root).as_posix()
        halted, rows = once(data)
        assert (list(halted), rows, content(mariadb, "d.u")) == (["d.t"], [], [(1, "one")])
        assert f"{data} lies in an archive of the store" in halted["d.t"]
        assert f"{_ARCHIVED[store][1]} archive" in halted["d.t"]
        assert once() == ({}, [(1, "one")])
        bucket.rows("d.t", 2, row("d.t", 12, "2", '"two"'))
        bucket.metadata(ts(19))
        assert once(*applied) == ({}, [(1, "one"), (2, "two")])


_ARCHIVED = {
    "s3": ("archived", "aws s3api restore-object --bucket"),
    "azure": ("blob archived", "az storage blob set-tier --tier Hot --container-name"),
}
"""Store → how it refuses to give out what is archived, and the command that brings it back."""


def _consumer(uri: str, server: DatabaseServer, folder: Path) -> Consumer:
    """The program with the shop's own settings."""
    config = str(SHOP.write_config(folder))
    return Consumer(upstream_uri=uri, downstream_uri=server.uri, config=config, tz=SHOP.timezone)
