"""Replays a recorded bucket step by step with the library entry, and shows what arrives after each step."""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pymysql.cursors

from storage_consumer import Consumer, Options
from storage_consumer.summary import RoundSummary

STATE_SCHEMA = "storage_consumer"
COPY_AT = 1
"""The step, from 0, as of which the export is."""
SHOWN = {
    "orders by status": "SELECT status, COUNT(*) AS orders, SUM(total) AS total FROM shop.orders GROUP BY status ORDER BY status",
    "best customers": (
        "SELECT c.full_name, c.city, COUNT(*) AS orders, SUM(o.total) AS spent FROM shop.customers c"
        " JOIN shop.orders o ON o.customer_id = c.id GROUP BY c.id, c.full_name, c.city ORDER BY spent DESC LIMIT 5"
    ),
    "least in stock": "SELECT sku, title, price, stock, state FROM shop.products ORDER BY stock, sku LIMIT 5",
}


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder with corpus.json and tree/"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the bucket and the configuration"
    )
    parser.add_argument("--socket", required=True, help="socket of the target database")
    parser.add_argument(
        "--exports", type=Path, help="archive of exports: begin with one as of the second step"
    )
    asked = parser.parse_args()
    facts = json.loads((asked.corpus / "corpus.json").read_text(encoding="utf-8"))
    bucket, config = asked.work / "bucket", asked.work / "changefeed.toml"
    shutil.rmtree(bucket, ignore_errors=True)
    config.write_text(facts["changefeed_toml"], encoding="utf-8")
    options: Options = {
        "upstream_uri": f"{bucket.resolve().as_uri()}?protocol=csv",
        "downstream_uri": f"mysql://root@localhost/?unix-socket={quote(asked.socket)}",
        "config": str(config),
        "tz": "UTC",
    }
    with pymysql.connect(unix_socket=asked.socket, user="root", autocommit=True) as target:
        begin_afresh(target)
        if asked.exports is None:
            print(
                "A shop's changes arrive in a bucket in five steps. Spark starts; that takes some seconds once.\n"
            )
            follow(options, asked.corpus / "tree", bucket, facts["cuts"])
        else:
            copy = export_at(
                asked.exports, asked.work / "export", facts["cuts"][COPY_AT]["checkpoint_ts"]
            )
            load_and_follow(options | {"dump": copy}, asked.corpus / "tree", bucket, facts["cuts"])
        for title, query in SHOWN.items():
            print(f"\n{title}")
            show_rows(target, query)


def follow(options: Options, tree: Path, bucket: Path, cuts: Sequence[Mapping[str, Any]]) -> None:
    """Let the files of one cut after another arrive, and apply each."""
    with Consumer(**options) as consumer:
        for number, cut in enumerate(cuts, 1):
            step(consumer, number, tree, bucket, cut)


def load_and_follow(
    options: Options, tree: Path, bucket: Path, cuts: Sequence[Mapping[str, Any]]
) -> None:
    """Load the export into the empty target, and apply the cuts behind it."""
    print(
        f"An export of the shop as of step {COPY_AT + 1} is loaded into an empty database; the steps after it follow.\n"
    )
    with Consumer(**options) as consumer:
        # Its files are in the bucket, and what they hold is in the copy.
        step(consumer, COPY_AT + 1, tree, bucket, cuts[COPY_AT])
        for number, cut in enumerate(cuts[COPY_AT + 1 :], COPY_AT + 2):
            step(consumer, number, tree, bucket, cut)


def export_at(archive: Path, folder: Path, tso: int) -> str:
    """Unpack the export of the shop, and return its URI. `tso`: that of its rows in the recorded bucket, a run of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as exports:
        exports.extractall(folder, filter="data")
    (dump,) = folder.glob("shop/*/dump")
    metadata = dump / "metadata"
    told = json.loads((dump.parent / "about.json").read_text(encoding="utf-8"))["metadata_pos"]
    metadata.write_text(
        metadata.read_text(encoding="utf-8").replace(told, str(tso)), encoding="utf-8"
    )
    # Nothing in it says in which zone its TIMESTAMP values are: that of the server that Dumpling read.
    return f"{dump.resolve().as_uri()}?time-zone=UTC"


def step(consumer: Consumer, number: int, tree: Path, bucket: Path, cut: Mapping[str, Any]) -> None:
    """Let the files of a cut arrive, apply them, and show what that was."""
    arrived = deliver(tree, bucket, cut)
    print(f"step {number}: {arrived} files arrive, checkpoint {cut['checkpoint_ts']}")
    show_round(consumer.run_once())


def begin_afresh(target: pymysql.connections.Connection[Any]) -> None:
    """Drop what an earlier demonstration left on its own private server."""
    with target.cursor() as cursor:
        for schema in (STATE_SCHEMA, "shop"):
            cursor.execute(f"DROP DATABASE IF EXISTS `{schema}`")


def deliver(tree: Path, bucket: Path, cut: Mapping[str, Any]) -> int:
    """Copy the files that exist at a cut and are not in the bucket yet, ``metadata`` last as TiCDC does; their number."""
    new = [path for path in cut["files"] if path != "metadata" and not (bucket / path).exists()]
    for path in new:
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / path, bucket / path)
    (bucket / "metadata").write_text(
        json.dumps({"checkpoint-ts": cut["checkpoint_ts"]}), encoding="utf-8"
    )
    return len(new)


def show_round(summary: RoundSummary) -> None:
    """Print one line for the round and one for each table that moved."""
    print(
        f"  {summary.rows} row changes from {summary.files} files, {summary.ddls} DDL statements,"
        f" {summary.written} rows written in {summary.seconds:.1f} s"
    )
    for table in summary.tables:
        error = f" {table.state}: {table.error}" if table.error else ""
        print(f"    {table.table:<18} {table.rows:>4} row changes  {table.ddls} DDL{error}")


def show_rows(target: pymysql.connections.Connection[Any], query: str) -> None:
    """Print the answer to a query as a table."""
    with target.cursor() as cursor:
        cursor.execute(query)
        header = [column[0] for column in cursor.description or ()]
        lines = [header, *([str(value) for value in row] for row in cursor.fetchall())]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    for line in aligned(lines, widths):
        print(f"  {line}")


def aligned(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Each line's cells, padded to the widths of the columns."""
    for line in lines:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()


if __name__ == "__main__":
    main()
