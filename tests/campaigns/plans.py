"""``python -m tests.campaigns plan``: plans each round of each recorded bucket, runs it, and holds the plan against what happened.

Equal means: the same statements with the same texts and reasons in the same order for each table, the same skips with their counts, the same
tables halted, and as many rows of each table; but for tables of which the plan calls a statement unchecked. Exit code 0 when all rounds are
equal, 1 when one differs, 2 when no corpus matches.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from storage_consumer import Consumer
from tests.campaigns.kinds.playing import ALL
from tests.harness.choosing import asked_for, offer
from tests.harness.corpora import Corpus
from tests.harness.local_spark import local_spark
from tests.harness.plans import planned_and_run
from tests.harness.replay import Replay
from tests.harness.servers import SERVERS, DatabaseServer, learn_zone
from tests.harness.small_bucket import CONFIG, SmallBucket, ts

WAYS = ("whole", "steps")
"""Everything in one round, or a round for each cut."""
_END = 1000
DDL = "batch_create,databases,ddl_storm,gap,generated,keys,names,partitions,views,x_defaults,x_hidden,x_zero"
"""Workloads that are about statements."""


def rounds(corpus: Corpus, way: str, server: DatabaseServer, folder: Path) -> list[list[str]]:
    """Empty the server and replay a corpus; return for each round what differs from its plan."""
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    folder.mkdir(parents=True)
    replay = Replay(corpus=corpus, server=server, folder=folder)
    try:
        found = []
        for cut in corpus.cuts[-1:] if way == "whole" else corpus.cuts:
            corpus.materialise(cut, replay.bucket)
            # A program of its own for each round: a start tries halted tables again, and a plan is that of a start.
            with replay.consumer() as consumer:
                found.append(planned_and_run(consumer, server))
        return found
    finally:
        shutil.rmtree(folder)


def kinds_of_statements(server: DatabaseServer, folder: Path) -> list[str]:
    """Empty the server and play one story of each kind of statement in one round; return what differs from its plan."""
    server.drop_all()
    bucket = SmallBucket(root=folder)
    for kind in ALL:
        kind.write(bucket)
    bucket.metadata(ts(_END))
    with Consumer(
        upstream_uri=bucket.uri, downstream_uri=server.uri, config=CONFIG, no_copy=True, tz="UTC"
    ) as consumer:
        return planned_and_run(consumer, server)


def main() -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns plan", description=__doc__)
    offer(parser, workloads=DDL, variants="csv,json")
    parser.add_argument("--servers", default="mariadb", help=f"of: {','.join(SERVERS)}")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"of: {','.join(WAYS)}")
    parser.add_argument("--kinds", action="store_true", help="instead of corpora, a story of each kind of statement")
    asked = parser.parse_args()
    if asked.kinds:
        return _kinds(asked.servers.split(","))
    corpora, began, total, equal = asked_for(asked), time.monotonic(), Counter[str](), Counter[str]()
    if not corpora:
        return 2
    with tempfile.TemporaryDirectory(prefix="plans-") as name, ExitStack() as stack:
        servers = [stack.enter_context(SERVERS[kind]()) for kind in asked.servers.split(",")]
        stack.enter_context(local_spark())
        for source, server, way in product(corpora, servers, asked.ways.split(",")):
            found = _shown(source.open(Path(name)), way, server, Path(name) / "replay")
            total[server.kind] += len(found)
            equal[server.kind] += sum(not problems for problems in found)
    for kind, count in total.items():
        print(f"{kind}: {equal[kind]} of {count} rounds equal to their plans, {time.monotonic() - began:.0f} s")
    return 0 if total == equal else 1


def _kinds(servers: Sequence[str]) -> int:
    """Print what differs where each kind of statement is played in one round; return the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="plans-") as name, local_spark():
        for kind in servers:
            with SERVERS[kind]() as server:
                problems = kinds_of_statements(server, Path(name) / kind)
            print(f"{kind}: {len(ALL)} kinds of statements, {len(problems)} differences from the plan", flush=True)
            print("".join(f"  {problem[:1500]}\n" for problem in problems), flush=True)
            wrong += len(problems)
    return 1 if wrong else 0


def _shown(corpus: Corpus, way: str, server: DatabaseServer, folder: Path) -> list[list[str]]:
    """Print and return what differs in each round of one corpus."""
    try:
        found = rounds(corpus, way, server, folder)
    except Exception as error:  # noqa: BLE001 - one corpus that fails must not hide the others
        found = [[f"{type(error).__name__}: {error}"]]
    right = sum(not problems for problems in found)
    print(f"{corpus} {server.name} {way}: {right} of {len(found)} rounds equal", flush=True)
    for number, problems in enumerate(found):
        for problem in problems:
            print(f"  round {number}: {problem[:1500]}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
