"""The page about DataFrames: its blocks, one after the other, leave what the source held in every lake that they write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from storage_consumer.spark import register
from tests.harness.corpora import Corpus, available
from tests.harness.pages import blocks
from tests.harness.tables_at import golden, shown

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
EXAMPLES = [block.text for block in blocks("python") if block.page == "docs/guide/spark.md"]


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    """The recorded shop, in a folder that is the current one."""
    (source,) = (each for each in available() if str(each) == "new/shop__csv")
    found = source.open(tmp_path / "corpus")
    found.materialise(found.cuts[-1], tmp_path / "bucket")
    found.write_config(tmp_path).rename(tmp_path / "changefeed.toml")
    before = Path.cwd()
    os.chdir(tmp_path)
    yield found
    os.chdir(before)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")  # at first there are none
def test_the_page(corpus: Corpus, spark: SparkSession, tmp_path: Path) -> None:
    """Parquet has each change, Delta and Iceberg have the table; other readers see the same changes."""
    register(spark)
    known: dict[str, Any] = {}
    for example in EXAMPLES:
        here = example
        # The session's processes began in another folder.
        for name in ("changefeed.toml", "checkpoints/", "lake/"):
            here = here.replace(f'"{name}', f'"{tmp_path}/{name}').replace(f"'{name}", f"'{tmp_path}/{name}")
        exec(here.replace("s3://bucket/prefix", corpus.sink_uri(tmp_path / "bucket")), known)  # noqa: S102 - our own page
    (table,) = (each for each in corpus.golden(corpus.cuts[-1]) if each.table == "orders")
    held = golden(table)
    assert shown((row.asDict() for row in known["now"].collect()), table, corpus.timezone) == held
    assert shown((row.asDict() for row in known["newest"].collect()), table, corpus.timezone) == held
    delta = pa.table(DeltaTable(f"{tmp_path}/lake/orders").to_pyarrow_table()).to_pylist()
    assert shown(delta, table, corpus.timezone) == held
    catalog = SqlCatalog("lake", uri="sqlite:///catalog.db", warehouse=f"{tmp_path}/lake/warehouse")
    assert shown(catalog.load_table("shop.orders").scan().to_arrow().to_pylist(), table, corpus.timezone) == held
    relation = duckdb.sql(
        f"SELECT count(*), count(DISTINCT (_file, _row)) FROM '{tmp_path}/lake/orders_by_day/*/*.parquet'"
    )
    assert relation is not None
    assert relation.fetchall() == [(known["feed"].count(),) * 2]
    assert len(known["frame"]) == known["once"].count()


def test_there_are_examples() -> None:
    """The page has some."""
    assert len(EXAMPLES) == 8
