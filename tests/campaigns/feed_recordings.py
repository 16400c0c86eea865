"""``python -m tests.campaigns feed-recordings``: what tests show of some recordings, over all of them: batches, streams, and tables as of each cut.

Streams are delivered in as many random orders as asked for. With ``--what spark``, Spark itself reads the tables at the last cut: by `table_at`, and
by plain SQL over `changes`. With ``--what kills``, one streaming query is killed as often as ``--orders`` says. Exit code 1 when one differs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from storage_consumer.spark import register
from tests.contract.test_feed_corpora import CORPORA
from tests.contract.test_frames_corpora import test_batches_have_what_the_feed_gives
from tests.contract.test_stream_corpora import test_every_row_once
from tests.contract.test_tables_at import test_equal_at_every_cut_or_refused
from tests.harness.choosing import words
from tests.harness.corpora import CorpusSource
from tests.harness.killed_streams import KilledStream
from tests.harness.local_spark import local_spark
from tests.harness.small_bucket import ID_NAME, SmallBucket, column, row, ts
from tests.harness.tables_in_spark import InSpark, compared_in_spark

Check = Callable[[CorpusSource, Path], None]
_SHOWN = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns feed-recordings", description=__doc__)
    parser.add_argument("--what", default="batches,streams,tables", help="comma-separated (default: %(default)s)")
    parser.add_argument("--orders", type=int, default=1, help="of each stream (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--streams", type=int, default=0, help="most recordings for streams, at random; 0: all")
    parser.add_argument("--part", default="1/1", help="which recordings Spark reads, such as 2/3 for the second third")
    asked = parser.parse_args(arguments)
    kinds = words(asked.what)
    differ = sum(_differing(what, asked) for what in kinds if what not in ("spark", "kills"))
    differ += _in_spark(asked.part) if "spark" in kinds else 0
    differ += _killed(asked.orders, asked.seed) if "kills" in kinds else 0
    return 1 if differ else 0


def _killed(kills: int, seed: int) -> int:
    """How many rows a query that was killed does not have once."""
    dice, began = random.Random(seed), time.monotonic()  # noqa: S311 - repeatable, not secret
    with tempfile.TemporaryDirectory(prefix="feed-kills-") as folder:
        bucket = SmallBucket(root=Path(folder) / "bucket")
        bucket.create("d.a")
        columns = (*ID_NAME, column("more", "INT"))
        bucket.schema("d.a", ts(5), "ALTER TABLE `a` ADD COLUMN `more` INT", 5, columns)
        stream = KilledStream(bucket, Path(folder) / "stream", 1, ts(5))
        bucket.rows("d.a", 1, row("d.a", 2, "2", '"x"'), version=ts(1))
        bucket.metadata(ts(9))
        for number in range(kills):
            stream.run_and_kill(dice)
            print(f"kills: {number + 1}, {time.monotonic() - began:.0f} s", flush=True)
        stream.end()
        found = Counter((each["_file"], each["_row"]) for each in stream.rows())
    twice, lost = sum(count - 1 for count in found.values()), 1 + stream.written - len(found)
    print(
        f"kills: {kills}, {len(found)} rows, {twice} twice, {lost} lost, {time.monotonic() - began:.0f} s", flush=True
    )
    return twice + lost


def _in_spark(part: str) -> int:
    """How many tables differ that Spark reads."""
    number, parts = map(int, part.split("/"))
    began, total = time.monotonic(), InSpark()
    sources = CORPORA[number - 1 :: parts]
    with local_spark() as spark:
        register(spark)
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        spark.sparkContext.setLogLevel("OFF")
        for source in sources:
            found = InSpark()
            fault = _fault(partial(_spark, spark, found), source)
            found.differing += [fault] if fault else []
            _add(total, found)
            for each in found.differing:
                print(f"spark {source}: {each[:_SHOWN]}", flush=True)
    seconds = time.monotonic() - began
    print(
        f"spark: {len(sources)} recordings, {total.equal} tables equal by table_at, {total.folded} by plain SQL, {total.refused} refused, "
        f"{len(total.differing)} differ, {seconds:.0f} s",
        flush=True,
    )
    return len(total.differing)


def _spark(spark: SparkSession, found: InSpark, source: CorpusSource, folder: Path) -> None:
    _add(found, compared_in_spark(source, spark, folder))


def _add(total: InSpark, found: InSpark) -> None:
    total.equal += found.equal
    total.folded += found.folded
    total.refused += found.refused
    total.differing += found.differing


def _differing(what: str, asked: argparse.Namespace) -> int:
    """How many checks of one kind fail."""
    chance = random.Random(asked.seed)  # noqa: S311 - repeatable, not secret
    seeds = range(asked.seed, asked.seed + asked.orders)
    kinds: dict[str, list[Check]] = {
        "batches": [partial(_batches, held_bytes) for held_bytes in (None, 2_000)],
        "streams": [partial(_stream, seed) for seed in seeds],
        "tables": [test_equal_at_every_cut_or_refused],
    }
    few = what == "streams" and asked.streams
    sources = chance.sample(CORPORA, min(asked.streams, len(CORPORA))) if few else CORPORA
    began, faults = time.monotonic(), 0
    for source in sources:
        for check in kinds[what]:
            fault = _fault(check, source)
            faults += bool(fault)
            if fault:
                print(f"{what} {source}: {fault[:_SHOWN]}", flush=True)
    print(f"{what}: {len(sources)} recordings, {faults} differ, {time.monotonic() - began:.0f} s", flush=True)
    return faults


def _batches(held_bytes: int | None, source: CorpusSource, folder: Path) -> None:
    test_batches_have_what_the_feed_gives(source, held_bytes, folder)


def _stream(seed: int, source: CorpusSource, folder: Path) -> None:
    test_every_row_once(source, seed, folder)


def _fault(check: Check, source: CorpusSource) -> str:
    folder = Path(tempfile.mkdtemp(prefix="feed-recordings-"))
    try:
        check(source, folder)
    except Exception as fault:  # noqa: BLE001 - whatever it is, it is told
        return f"{type(fault).__name__}: {fault}"
    finally:
        shutil.rmtree(folder)
    return ""


if __name__ == "__main__":
    sys.exit(main())
