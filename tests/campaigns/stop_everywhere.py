"""``python -m tests.campaigns.stop_everywhere``: ends the program before and after every step of a corpus's plan, and starts it again.

A point is where the program is about to make a call that changes something outside, the one before having been answered.
In two ways. *In a row*: the files of each cut, and processes that come one point further each, until all points of the cut were
taken; the target must equal the source at every cut. *Alone*: all files at once, one process that ends at one point, another one
that finishes; the target must equal the source. Either way no statement may take effect twice, see `stopping.Effects`, and the
server's general log must bear out what was sent.

Exit code 0 when all is so, 1 when it is not, 2 when no corpus matches what was asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.choosing import asked_for, offer
from tests.harness.corpora import Corpus
from tests.harness.local_spark import local_spark
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import SERVERS, DatabaseServer, learn_zone
from tests.harness.stopping import Effects, Points, finished, general_log, logged, round_to, watched

WORKLOADS = "ddl_storm,databases,partitions,views,generated,names,gap,late_dups,batch_create,x_hidden,x_defaults,x_zero"
MOST_ALONE = 40
"""Points of a corpus at which a process ends alone, unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What was seen of one corpus."""

    points: int
    """At which processes ended."""
    of: int
    """Points that there are."""
    key_drift: int
    repeated: int


def in_a_row(replay: Replay) -> Stopped:
    """Each process comes one point further, to the next cut when all were taken. Raises `NotEqual`."""
    points = Points(replay.server, Effects(replay.server))
    _emptied(replay)
    with general_log(replay.server), watched(points):
        for cut in replay.corpus.cuts:
            round_to(replay, cut, points)
        ended = len(points.ended_at)
        _refuse_twice(replay, points)
    return Stopped(points=ended, of=ended, key_drift=points.key_drift, repeated=points.effects.repeated)


def alone(replay: Replay, most: int) -> Stopped:
    """One process ends at one point, the next one finishes; for at most so many points. Raises `NotEqual`."""
    count = _one(replay, 0).passed
    every = max(1, -(-count // most)) if most else count + 1
    numbers = range(every, count + 1, every)
    key_drift = repeated = 0
    for number in numbers:
        try:
            points = _one(replay, number)
        except NotEqual as fault:
            message = f"ended alone at point {number} of {count}: {fault}"
            raise NotEqual(message) from fault
        key_drift, repeated = key_drift + points.key_drift, repeated + points.effects.repeated
    return Stopped(points=len(numbers), of=count, key_drift=key_drift, repeated=repeated)


def _one(replay: Replay, number: int) -> Points:
    points = Points(replay.server, Effects(replay.server), alone=number)
    _emptied(replay)
    with general_log(replay.server), watched(points):
        round_to(replay, replay.corpus.cuts[-1], points)
        passed = points.passed
        _refuse_twice(replay, points)
    points.passed = passed
    return points


def _emptied(replay: Replay) -> None:
    """No database, no bucket, and a server that knows the zone."""
    replay.server.drop_all()
    learn_zone(replay.server, "+00:00" if replay.corpus.timezone == "UTC" else replay.corpus.timezone)
    shutil.rmtree(replay.folder, ignore_errors=True)
    replay.folder.mkdir(parents=True)


def _refuse_twice(replay: Replay, points: Points) -> None:
    """Start once more, which must change nothing, and hold what was sent against the server's log."""
    effects, ended_at = points.effects, [*points.ended_at][-1:]
    points.alone = 0
    again = finished(replay, points)
    wrong = [f"one more start wrote {again.written} rows, ran {again.ddls} DDL"] if again.written or again.ddls else []
    wrong += effects.differences_from(effects.sent if replay.server.kind == "tidb" else logged(replay.server))
    if wrong:
        raise NotEqual("\n".join([str(replay.corpus), *ended_at, *wrong]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    corpora = asked_for(asked)
    if not corpora:
        return 2
    with tempfile.TemporaryDirectory(prefix="stops-") as name, SERVERS[asked.server]() as server, local_spark():
        print(f"{server.name} {server.version}\n| corpus | way | points | s | |\n|---|---|---|---|---|", flush=True)
        folder, ways = Path(name), _ways(asked)
        failures = [
            text
            for source in corpora
            for way, run in ways.items()
            if (text := _told(source.open(folder), way, run, server, folder / "replay"))
        ]
    print("\n".join(failures) or "all equal, no statement took effect twice")
    return 1 if failures else 0


def _ways(asked: argparse.Namespace) -> dict[str, Callable[[Replay], Stopped]]:
    ways: dict[str, Callable[[Replay], Stopped]] = {"in a row": in_a_row} if asked.row else {}
    if asked.most:
        ways["alone"] = lambda replay: alone(replay, asked.most)
    return ways


def _told(corpus: Corpus, way: str, run: Callable[[Replay], Stopped], server: DatabaseServer, folder: Path) -> str:
    """Print one line for a corpus; what was wrong with it, or an empty text."""
    began = time.monotonic()
    try:
        stopped = run(Replay(corpus=corpus, server=server, folder=folder))
    except Exception as error:  # noqa: BLE001 - one corpus that fails must not hide the others
        print(f"| {corpus} | {way} | FAILED | {time.monotonic() - began:.0f} | |", flush=True)
        return f"{corpus} {way}: {type(error).__name__}: {error}"
    count = f"{stopped.points}" if stopped.points == stopped.of else f"{stopped.points} of {stopped.of}"
    notes = [f"{stopped.key_drift} decided by the operator"] if stopped.key_drift else []
    notes += [f"{stopped.repeated} ran again without effect"] if stopped.repeated else []
    print(f"| {corpus} | {way} | {count} | {time.monotonic() - began:.0f} | {', '.join(notes)} |", flush=True)
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.stop_everywhere", description="Stop after every step."
    )
    offer(parser, workloads=WORKLOADS, variants="csv,json")
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    parser.add_argument("--no-row", dest="row", action="store_false", help="leave out the way in a row")
    parser.add_argument(
        "--most", type=int, default=MOST_ALONE, help="points at which a process ends alone: every k-th of a corpus"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
