"""``python -m tests.campaigns refusals``: random histories with rows that a real target refuses, held against a model.

Tables with different keys get inserts, updates, deletes, exchanges of unique values, TRUNCATE and ADD COLUMN. A column is too short in the
target for a while, which then refuses some rows. Consumers come and go, with a quarantine, without one, and with a small limit; some
end between what they wrote and what they noted. Operators retry rows, give them up, and have tables loaded anew from copies. After each
round, target and quarantine together must be what the source is: each key is either equal in the target, or in the quarantine in its
newest state.

Exit code 0 if all histories were right. ``--plant`` plants a bug that has to be found: then exit code 1 is right.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from storage_consumer.checkpoint import journal
from storage_consumer.checkpoint.findings import StoredQuarantine, close_entries
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.spark_session import open_session
from tests.campaigns.refusing.consumers import Consumers, Wrong
from tests.campaigns.refusing.history import History
from tests.campaigns.refusing.source import Diary, Source
from tests.harness.servers import SERVERS, DatabaseServer
from tests.harness.small_bucket import SmallBucket

_ALL = (1 << 63) - 1
PLANTS = {
    "not-superseded": (StoredQuarantine, "entries", lambda _: {}),
    "truncated-and-kept": (journal, "close_entries", lambda *_, **__: None),
    # A statement that the copy of a load holds is noted as done after the copy's rows were refused.
    "closed-with-the-copy": (journal, "close_entries", lambda *words, **_: close_entries(*words, upto=_ALL)),
}
"""Bugs: the place of a function, and what stands there instead."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns refusals", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; the others follow")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no history after so long")
    parser.add_argument("--server", choices=sorted(SERVERS), default="mariadb")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    asked = parser.parse_args(arguments)
    wrong, counts, until = 0, dict[str, int](), time.monotonic() + asked.seconds
    logging.disable(logging.CRITICAL)
    with SERVERS[asked.server]() as server, ExitStack() as stack:
        # One session for all consumers, which would else start one each.
        session, _ = open_session(Tuning())
        stack.callback(session.stop)
        if asked.plant:
            stack.enter_context(patch.object(*PLANTS[asked.plant]))
        for seed in range(asked.seed, asked.seed + asked.histories):
            if time.monotonic() < until:
                counts["histories"] = counts.get("histories", 0) + 1
                wrong += not played(seed, server, asked.rounds, counts)
    print(", ".join(f"{number:,} {name}" for name, number in counts.items()), f"; {wrong} wrong", sep="")
    return 1 if wrong else 0


def played(seed: int, server: DatabaseServer, rounds: int, counts: dict[str, int]) -> bool:
    """Play one history; return whether it was right, else print what happened."""
    server.drop_all()
    with tempfile.TemporaryDirectory(prefix="refusals-") as folder:
        chance, diary = random.Random(seed), Diary()  # noqa: S311 - repeatable, not secret
        bucket = SmallBucket(root=Path(folder) / "bucket")
        consumers = Consumers(chance, server, bucket.uri, diary)
        history = History(Source(chance, bucket, diary), consumers, diary)
        try:
            history.play(rounds)
        except Wrong as error:
            print(f"seed {seed}: {error}", *diary.lines[-40:], sep="\n  ", file=sys.stderr, flush=True)
            return False
        finally:
            consumers.close()
            for name, number in diary.counts.items():
                counts[name] = counts.get(name, 0) + number
    return True


if __name__ == "__main__":
    sys.exit(main())
