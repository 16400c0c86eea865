"""Recorded tables read by Spark itself: `table_at`, and `changes` folded by plain SQL that knows nothing of it, against what the source held."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from storage_consumer.errors import NotReplicable, UndecodableRow
from storage_consumer.spark import changes, table_at
from storage_consumer.sql.tokens import quote
from tests.harness.corpora import Corpus, CorpusSource, Cut, GoldenTable
from tests.harness.expectations import null_like, overwritten
from tests.harness.tables_at import golden, shown

REASONS = (
    r"may have rewritten the values of column",
    r"gave the rows a value of column \S+ that the files do not have",
    r"does not show where the table began",
    r"took away or put in rows that the files do not show",
    r"brought back rows that the files do not have",
    r"has no primary key, and its CSV files no old values",
    r"the primary key was another one",
    r"more deletes than inserts of one row",
    r"the structure changed and no statement shows how",
    r"cannot replicate",
    r"may lie in the directory of table version",
    r"does not say which database's table",
    r"shows the members of its ENUM and SET columns",
)
"""Why a table cannot be told from the files of a bucket."""


@dataclass(slots=True)
class InSpark:
    """What became of the tables of a recording."""

    equal: int = 0
    """By `table_at`."""
    folded: int = 0
    """By plain SQL."""
    refused: int = 0
    differing: list[str] = field(default_factory=list)


def compared_in_spark(source: CorpusSource, spark: SparkSession, folder: Path) -> InSpark:
    """Compare all tables of a recording at its last cut. Plain SQL gets those of which all rows have one structure, and no statement moved any."""
    corpus = source.open(folder)
    cut = corpus.cuts[-1]
    corpus.materialise(cut, folder / "bucket")
    lost = {name.lower() for name in overwritten(corpus)}
    found = InSpark()
    options: Any = {"config": str(corpus.write_config(folder)), "tz": corpus.timezone}
    uri = corpus.sink_uri(folder / "bucket")
    everything = spark.read.format("ticdc").options(**options).load(uri)
    statements = [row["statement"] for row in everything.where("_change_type = 'ddl'").select("statement").collect()]
    for table in corpus.golden(cut):
        if table.name.lower() not in lost:
            _compare(found, spark, (corpus, cut, uri, options, statements), table)
    return found


def _compare(
    found: InSpark, spark: SparkSession, place: tuple[Corpus, Cut, str, Any, list[str]], table: GoldenTable
) -> None:
    corpus, cut, uri, options, statements = place
    name, null = f"{quote(table.schema)}.{quote(table.table)}", null_like(corpus)
    held = _with_text(golden(table), null)
    try:
        frame = table_at(spark, uri, name, cut.checkpoint_ts, **options)
        rows = _with_text(shown((each.asDict() for each in frame.collect()), table, corpus.timezone), null)
    except (NotReplicable, UndecodableRow, PySparkException) as fault:
        known = any(re.search(reason, str(fault)) for reason in REASONS)
        found.refused += known
        found.differing += [] if known else [f"{table.name}: {fault}"]
        return
    found.equal += rows == held
    found.differing += [] if rows == held else [f"{table.name}: table_at"]
    named = re.compile(rf"(?<![\w$]){re.escape(table.table)}(?![\w$])", re.IGNORECASE)
    if not _is_plain([statement.lstrip().upper() for statement in statements if named.search(statement)]):
        return
    once = changes(spark.read.format("ticdc").options(table=name, **options).load(uri))
    if once.select("_table_version").distinct().count() != 1:
        return
    is_equal = _with_text(_folded(spark, once, table, corpus.timezone), null) == held
    found.folded += is_equal
    found.differing += [] if is_equal else [f"{table.name}: plain SQL"]


def _with_text(rows: Counter[tuple[Any, ...]], null: str | None) -> Counter[tuple[Any, ...]]:
    """Return rows with a text in the place of each NULL, where the files do not tell these apart; None: they do."""
    if null is None:
        return rows
    found = Counter[tuple[Any, ...]]()
    for row, count in rows.items():
        found[tuple(null if value is None else value for value in row)] += count
    return found


def _is_plain(own: list[str]) -> bool:
    """Return whether the statements that name a table create it, and change no row of it but by its structure."""
    created, *later = own or [""]
    plain = (each.startswith("ALTER TABLE") and not re.search(r"\b(PARTITION|RENAME TO)\b", each) for each in later)
    return created.startswith("CREATE TABLE") and all(plain)


def _folded(spark: SparkSession, once: DataFrame, table: GoldenTable, zone: str) -> Counter[tuple[Any, ...]]:
    """Return what plain SQL makes of changes."""
    once.createOrReplaceTempView("once")
    if table.primary_key:
        keys = ", ".join(map(quote, table.primary_key))
        query = (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY "
            f"{keys} ORDER BY _commit_version DESC, _change_type = 'delete', _sequence DESC) AS `last of` FROM once) WHERE `last of` = 1 AND _change_type <> 'delete'"
        )
        return shown((each.asDict() for each in spark.sql(query).collect()), table, zone)
    signs = spark.sql("SELECT * FROM once").collect()
    found = shown((each.asDict() for each in signs if each["_change_type"] != "delete"), table, zone)
    found.subtract(shown((each.asDict() for each in signs if each["_change_type"] == "delete"), table, zone))
    return +found
