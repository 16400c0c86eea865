"""The command: make a bucket, run the program on it, compare with what the server can load.

Each run begins with the limit (LOAD DATA of the final rows over two connections), then the program fills an empty target in
a session that is warm; the result is checked by row counts and checksums. Exit code 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests import servers
from tests.benchmarks.bucket import PROFILES, Bucket, Order, write_bucket
from tests.benchmarks.limit import WrongResult
from tests.benchmarks.measuring import SERVER_OPTIONS, Run, cold_run, warm_runs
from tests.benchmarks.report import document, ending, figures, heading, line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    order = Order(
        events=asked.events, protocol=asked.protocol, profile=asked.profile, tables=asked.tables, seed=asked.seed
    )
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        servers.mariadb(innodb=SERVER_OPTIONS) as server,
    ):
        bucket = _written(order, Path(folder))
        print(heading(bucket, server.version), flush=True)
        found = []
        try:
            for number, run in enumerate(_runs(bucket, server, asked), start=1):
                found.append(figures(bucket, run))
                print(line("cold" if run.session else str(number), found[-1]), flush=True)
        except WrongResult as error:
            print(error, file=sys.stderr)
            return 1
        print(ending(found), flush=True)
        if asked.json:
            text = json.dumps(document(bucket, server.version, found), indent=2)
            asked.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="row changes (default: %(default)s)")
    parser.add_argument("--protocol", default="canal-json", choices=("canal-json", "csv"))
    parser.add_argument(
        "--profile", default="mixed", choices=PROFILES, help="mixed: 60%% insert, 30%% update, 10%% delete"
    )
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="measured runs, after one that warms up")
    parser.add_argument(
        "--cold", action="store_true", help="one run in a fresh process, with the start of Spark told apart"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser


def _runs(bucket: Bucket, server: servers.DatabaseServer, asked: argparse.Namespace) -> Iterator[Run]:
    if asked.cold:
        yield cold_run(bucket, server)
    else:
        yield from warm_runs(bucket, server, asked.runs)


def _written(order: Order, folder: Path) -> Bucket:
    """The bucket, made in another process so that its memory is not counted as the driver's."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(write_bucket, order, folder).result()


if __name__ == "__main__":
    sys.exit(main())
