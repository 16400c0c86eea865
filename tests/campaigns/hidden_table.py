"""``python -m tests.campaigns.hidden_table``: replays recordings with all options hidden, and counts inferred, refused and wrong.

Each must be inferred rightly, so that the target is equal, or refused with the name of the setting that is missing. Exit code
0 when none is wrong, 1 when one is, 2 when no recording matches.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.harness.choosing import asked_for, offer
from tests.harness.corpora import Corpus
from tests.harness.hidden import Outcome, looked_at, mistakes, replayed_hidden
from tests.harness.local_spark import local_spark
from tests.harness.servers import SERVERS, DatabaseServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    corpora = asked_for(asked)
    if not corpora:
        return 2
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hidden-") as name, ExitStack() as stack:
        server = None
        if not asked.look:
            server = stack.enter_context(SERVERS[asked.server]())
            stack.enter_context(local_spark())
        for source in corpora:
            corpus = source.open(Path(name))
            outcome = _outcome(corpus, server, Path(name) / "replay")
            counts[f"{outcome.kind} {', '.join(outcome.by)}".strip()] += 1
            print(f"| {corpus} | {outcome.kind} | {', '.join(outcome.by)} | {outcome.problem} |", flush=True)
    print(f"\n{len(corpora)} recordings, all options hidden:")
    for kind, count in sorted(counts.items()):
        print(f"{count:5} {kind}")
    return 1 if any(kind.startswith("wrong") for kind in counts) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.hidden_table", description="Replay with options hidden."
    )
    offer(parser)
    parser.add_argument("--server", default="mariadb", choices=tuple(SERVERS))
    parser.add_argument("--look", action="store_true", help="judge what is inferred alone, without a target")
    return parser


def _outcome(corpus: Corpus, server: DatabaseServer | None, folder: Path) -> Outcome:
    if server is None:
        bucket = looked_at(corpus)
        wrong = mistakes(corpus, bucket)
        named = tuple(each.name for each in bucket.missing)
        kind = "wrong" if wrong else "refused" if set(named) - {"tz"} else "inferred"
        return Outcome(kind=kind, by=named, problem="; ".join(wrong))
    folder.mkdir(parents=True)
    try:
        return replayed_hidden(corpus, server, folder)
    except Exception as error:  # noqa: BLE001 - one corpus that fails must not hide the others
        return Outcome(kind="wrong", problem=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
