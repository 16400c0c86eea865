"""``python -m tests.campaigns.shuffles``: recorded buckets delivered in other ways, each compared with the source at every cut.

A seed says which corpus, how its files are cut, repeated and delayed (see `shuffling`), before which rounds the program is
started anew, and in which of them ``metadata`` is behind. Exit code 0 when all are equal, 1 when one is not, 2 when no corpus
matches what was asked for.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path

from storage_consumer import Consumer
from tests.harness.choosing import asked_for, offer
from tests.harness.corpora import CorpusSource, Cut, write_at_once
from tests.harness.local_spark import local_spark
from tests.harness.replay import Replay
from tests.harness.servers import SERVERS, DatabaseServer, learn_zone
from tests.harness.shuffling import VARIANTS, Counts, Placed, Shuffled

_SOMETIMES = 0.3


@dataclass(slots=True, kw_only=True)
class Done:
    """What all shuffles together were."""

    shuffles: int = 0
    rounds: int = 0
    starts: int = 0
    """Of the program."""
    behind: int = 0
    """Rounds in which ``metadata`` was that of an earlier cut."""
    counts: Counts = field(default_factory=Counts)

    def __str__(self) -> str:
        """One line."""
        own = [f"{getattr(self, f.name)} {f.name}" for f in fields(self) if f.name != "counts"]
        return ", ".join(own + [f"{getattr(self.counts, f.name)} {f.name}" for f in fields(self.counts)])


def shuffled(replay: Replay, dice: random.Random, done: Done) -> None:
    """Deliver the corpus in one other way; raises `NotEqual` where the target differs from the source at any cut."""
    replay.server.drop_all()
    learn_zone(replay.server, "+00:00" if replay.corpus.timezone == "UTC" else replay.corpus.timezone)
    replay.folder.mkdir(parents=True)
    shuffle = Shuffled(corpus=replay.corpus, dice=dice)
    try:
        _deliver(replay, shuffle.objects(), dice, done)
    finally:
        shutil.rmtree(replay.folder)
    done.shuffles += 1
    done.counts.add(shuffle.counts)


def _deliver(replay: Replay, objects: Sequence[Placed], dice: random.Random, done: Done) -> None:
    """Cut by cut what is there from then on, and a round each; the program is started anew now and then."""
    with ExitStack() as stack:
        consumer: Consumer | None = None
        for cut, told in _rounds(replay.corpus.cuts, dice, done):
            for one in (one for one in objects if one.cut == cut.number):
                write_at_once(replay.bucket / one.path, one.content)
            if consumer is None or dice.random() < _SOMETIMES:
                stack.close()
                consumer = stack.enter_context(replay.consumer())
                done.starts += 1
            replay.corpus.set_checkpoint(replay.bucket, told)
            replay.round_to(told, consumer, rows_beyond=True)
            done.rounds += 1


def _rounds(cuts: Sequence[Cut], dice: random.Random, done: Done) -> Iterator[tuple[Cut, Cut]]:
    """Of which cut the files are, and of which ``metadata`` is."""
    for cut in cuts:
        if cut.number and dice.random() < _SOMETIMES:
            done.behind += 1
            yield cut, cuts[cut.number - 1]
        yield cut, cut


def of_seed(
    seed: int, corpora: Sequence[CorpusSource], server: DatabaseServer, folder: Path, done: Done
) -> CorpusSource:
    """Shuffle the corpus that a seed chooses in the way that it says; which one it was."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    source = dice.choice(corpora)
    while (corpus := source.open(folder)).expected_loss:
        source = dice.choice(corpora)
    replay = Replay(corpus=corpus, server=server, folder=folder / "replay")
    try:
        shuffled(replay, dice, done)
    except Exception as error:
        error.add_note(f"{source} shuffled by seed {seed}")
        raise
    return source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    corpora = asked_for(asked)
    if not corpora:
        return 2
    done, failed, began = Done(), list[int](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shuffles-") as name, SERVERS[asked.server]() as server, local_spark():
        print(f"{server.name} {server.version}, {len(corpora)} corpora", flush=True)
        for seed in range(asked.seed, asked.seed + asked.count):
            try:
                of_seed(seed, corpora, server, Path(name), done)
            except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
                failed.append(seed)
                print("\n".join([f"{type(error).__name__}: {error}", *error.__notes__]), flush=True)
            if (seed - asked.seed + 1) % 25 == 0:
                print(f"{seed - asked.seed + 1} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"{done}; {len(failed)} that differ {failed or ''}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.shuffles", description="Shuffle corpora.")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first shuffle; each next one has the next")
    offer(parser, variants=VARIANTS)
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    return parser


if __name__ == "__main__":
    sys.exit(main())
