"""``python -m tests.campaigns feeds``: plays the changes of corpora, as `changes --format sql` prints them, into a TiDB, from cut to cut.

After each window the server must hold what the source held at that cut. Exit code 1 when one differs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from storage_consumer.errors import NotReplicable, StorageConsumerError
from tests.harness.choosing import words
from tests.harness.corpora import Corpus, available, chosen
from tests.harness.expectations import has_commit_ts
from tests.harness.feeds import unequal
from tests.harness.servers import SERVERS, DatabaseServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns feeds", description=__doc__)
    parser.add_argument("--workloads", default="", help="comma-separated; empty: all")
    parser.add_argument("--variants", default="", help="comma-separated; empty: all")
    parser.add_argument("--arch", default="")
    asked = parser.parse_args(arguments)
    corpora = chosen(
        available(), workloads=words(asked.workloads), variants=words(asked.variants), archs=words(asked.arch)
    )
    differ = 0
    with tempfile.TemporaryDirectory(prefix="feeds-") as name, SERVERS["tidb"]() as server:
        for number, source in enumerate(corpora):
            folder = Path(name) / str(number)
            folder.mkdir()
            corpus = source.open(folder)
            if not has_commit_ts(corpus):
                print(f"{source}: no commit-ts", flush=True)
                continue
            started = time.monotonic()
            found, left_out = _tried(corpus, folder, server)
            differ += bool(found)
            print(
                f"{source}: {'DIFFERS' if found else 'equal'}{' without ' + ', '.join(left_out) if left_out else ''} ({time.monotonic() - started:.1f} s)",
                *found[:8],
                sep="\n    ",
                flush=True,
            )
            shutil.rmtree(folder)
    print(f"{differ} differ")
    return 1 if differ else 0


def _tried(corpus: Corpus, folder: Path, server: DatabaseServer) -> tuple[list[str], list[str]]:
    """What differs, without the tables whose changes are no SQL: the files do not say which rows are updated."""
    left_out: list[str] = []
    while True:
        server.drop_all()
        try:
            return unequal(corpus, folder, server, left_out), left_out
        except NotReplicable as fault:
            if "which row of a table without a primary key" not in str(fault):
                return [str(fault)], left_out
            left_out.append(str(fault).partition(",")[0])
        except StorageConsumerError as fault:
            return [f"{type(fault).__name__}: {fault}"], left_out


if __name__ == "__main__":
    sys.exit(main())
