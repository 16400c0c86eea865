"""The shop from Google's and Azure's stores, as their emulators have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from storage_consumer import Consumer
from tests.harness.azure_server import AzureServer
from tests.harness.comparing import differences
from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.gcs_server import GcsServer
from tests.harness.servers import DatabaseServer

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


def _consumer(uri: str, server: DatabaseServer, folder: Path) -> Consumer:
    """The program with the shop's own settings."""
    config = str(SHOP.write_config(folder))
    return Consumer(upstream_uri=uri, downstream_uri=server.uri, config=config, tz=SHOP.timezone)
