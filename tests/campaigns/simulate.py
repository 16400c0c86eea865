"""``python -m tests.campaigns.simulate``: random histories of source, TiCDC, crashes and zombies through the real driver, held against a model.

Manager, planner, ordering, pipeline, service, round, DDL runner and journal are the real ones; bucket, target and clock are
memory twins. Each history is a list of numbers of which each says by itself what happens next; the same seed gives the same history.
After every call of a process the target must be what the source was at the stored checkpoint, as far as docs/architecture.md promises it.

Exit code 0 when all histories agree, 1 when one does not: its story is printed, cut down to what is needed, with what
``--replay`` takes to run it again.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import takewhile

from tests.campaigns.simulation.counts import Counts
from tests.campaigns.simulation.history import History, Operator, run
from tests.campaigns.simulation.places import AWAY, EXCHANGED
from tests.campaigns.simulation.plants import PLANTS, planted
from tests.campaigns.simulation.remembered import remembered
from tests.campaigns.simulation.selectors import some_selectors
from tests.campaigns.simulation.sink import Habits
from tests.campaigns.simulation.twins import Ends, InDoubt, Refused, Torn, Unread
from tests.property.shrinking import Run, cut_down, fault_in, tell

ACTS = 20
SHRINKING_SECONDS = 60.0
_SHARE = 50
"""Histories that a process takes at once."""


@dataclass(slots=True)
class Outcome:
    """What became of some histories."""

    counts: Counts = field(default_factory=Counts)
    failed: list[tuple[int, str]] = field(default_factory=list)
    """Seed and fault."""


def of_seed(seed: int, acts: int, *, hands: bool = False) -> tuple[Run, list[int]]:
    """What runs a history, and its numbers; `hands`: with people who change the target and use the program's commands."""
    dice, more = random.Random(seed), random.Random(f"{seed} files")  # noqa: S311 - not for secrets
    new = dice.random() < 0.5
    habits = Habits(
        new=new,
        dates=dice.random() < 0.5,
        dispatchers=dice.random() < 0.3,
        raw=dice.random() < 0.3,
        protocol="canal-json" if dice.random() < 0.3 else "csv",
        lagging=more.random() < 0.8 and not new,
        shared=more.random() < 0.3 and not new,
    )
    selects = random.Random(f"{seed} selectors")  # noqa: S311 - not for secrets
    habits = replace(habits, selectors=some_selectors(selects, habits.protocol))
    habits = replace(habits, views=random.Random(f"{seed} views").random() < 0.3)  # noqa: S311 - not for secrets
    slow_workers = dice.random() < 0.4
    # By dice of its own, so that histories without a skip stay what they are.
    skips = random.Random(f"{seed} skips").random() < 0.2  # noqa: S311 - not for secrets
    copies = random.Random(f"{seed} copies")  # noqa: S311 - not for secrets
    begins, loads = copies.random() < 0.25, copies.random() < 0.3
    late = begins and copies.random() < 0.4
    routed = random.Random(f"{seed} routes")  # noqa: S311 - not for secrets
    routes = routed.choice((AWAY, EXCHANGED)) if routed.random() < 0.2 else {}
    is_lax = random.Random(f"{seed} lax").random() < 0.2  # noqa: S311 - not for secrets
    exchanges = random.Random(f"{seed} exchanges").random() < 0.2  # noqa: S311 - not for secrets
    expires = random.Random(f"{seed} expires").random() < 0.2  # noqa: S311 - not for secrets
    operator = (
        Operator(exchanges=True, routes=routes, is_lax=is_lax)
        if exchanges
        else Operator(
            is_lax=is_lax,
            pauses=more.random() < 0.3,
            skips=skips,
            begins=begins,
            late=late,
            loads=loads,
            routes=routes,
            expires=expires,
        )
    )
    if hands:
        operator = Operator(hands=True, loads=loads, begins=begins, routes=routes)
    return partial(run, habits, slow_workers, operator), [dice.getrandbits(48) for _ in range(acts)]


def simulate(
    seeds: Sequence[int],
    acts: int,
    plants: Sequence[str] = (),
    *,
    until_one_fails: bool = False,
    hands: bool = False,
) -> Outcome:
    """Run the histories of some seeds."""
    outcome, before = Outcome(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with remembered(), planted(plants):
            for _ in takewhile(
                lambda seed: _agrees(partial(of_seed, seed, acts, hands=hands), seed, outcome) or not until_one_fails,
                seeds,
            ):
                pass
    finally:
        logging.disable(before)
    return outcome


def _agrees(drawn: Callable[[], tuple[Run, list[int]]], seed: int, outcome: Outcome) -> bool:
    """Run the history of a seed; whether it ends as it should."""
    runs, numbers = drawn()
    try:
        history = runs(numbers)
    except Ends as end:
        outcome.counts.histories += 1
        outcome.counts.doubtful += isinstance(end, InDoubt)
        outcome.counts.torn += isinstance(end, Torn)
        outcome.counts.refused_feeds += isinstance(end, Refused)
        outcome.counts.unread += isinstance(end, Unread)
        return True
    except Exception as fault:  # noqa: BLE001 - any fault is one
        outcome.counts.histories += 1
        outcome.failed.append((seed, f"{type(fault).__name__}: {fault}"))
        return False
    assert isinstance(history, History)
    outcome.counts.add(history.counts)
    return True


def _ended(runs: Run, numbers: Sequence[int]) -> None:
    """Run a history; one that ends at a table that halts for a good reason is none that fails."""
    with suppress(Ends):
        runs(numbers)


def _shares(asked: argparse.Namespace) -> Iterator[range]:
    end = asked.seed + asked.histories
    return (range(first, min(first + _SHARE, end)) for first in range(asked.seed, end, _SHARE))


def _all(asked: argparse.Namespace) -> Iterator[Outcome]:
    """The outcome of each share of the seeds."""
    work = partial(simulate, acts=asked.acts, plants=asked.plant, until_one_fails=bool(asked.plant), hands=asked.hands)
    if asked.processes == 1:
        yield from map(work, _shares(asked))
        return
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        yield from pool.imap_unordered(work, _shares(asked))


def _tell_of(seed: int, asked: argparse.Namespace) -> None:
    """Print the story of a history, and how to run it again."""
    runs, numbers = of_seed(seed, asked.acts, hands=asked.hands)
    if asked.replay is not None:
        numbers = [int(number) for number in asked.replay.split(",") if number]
    elif asked.seconds:
        numbers = cut_down(partial(_ended, runs), numbers, asked.seconds)
    tell(runs, numbers)
    plants = "".join(f" --plant {name}" for name in asked.plant)
    print(
        f"again: python -m tests.campaigns.simulate --seed {seed}{' --hands' * asked.hands}{plants} --replay {','.join(map(str, numbers))}"
    )


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.simulate", description="Random histories through the whole driver."
    )
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first history; each next one has the next")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--acts", type=int, default=ACTS, help="of each history")
    parser.add_argument(
        "--plant", choices=PLANTS, action="append", default=[], help="a bug; ends with the first history that differs"
    )
    parser.add_argument(
        "--seconds", type=float, default=SHRINKING_SECONDS, help="for cutting the first failing one down"
    )
    parser.add_argument("--hands", action="store_true", help="with people who change the target and use the commands")
    parser.add_argument("--replay", metavar="NUMBERS", help="tell the history of the seed with these numbers only")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _asked(arguments)
    logging.disable(logging.CRITICAL)
    if asked.replay is not None:
        with remembered(), planted(asked.plant):
            _tell_of(asked.seed, asked)
            runs, _ = of_seed(asked.seed, asked.acts, hands=asked.hands)
            return int(fault_in(runs, [int(number) for number in asked.replay.split(",") if number]) is not None)
    total, began, failed = Counts(), time.monotonic(), list[tuple[int, str]]()
    for outcome in _all(asked):
        total.add(outcome.counts)
        failed += outcome.failed
        for seed, fault in outcome.failed:
            print(f"seed {seed}: {fault}", flush=True)
        if total.histories % 1_000 < _SHARE:
            print(f"{total.histories} histories, {time.monotonic() - began:.0f} s", flush=True)
        if failed and asked.plant:
            break
    seconds = time.monotonic() - began
    if failed:
        with remembered(), planted(asked.plant):
            _tell_of(min(failed)[0], asked)
    counts = ", ".join(f"{getattr(total, one.name)} {one.name}" for one in fields(total))
    print(
        f"{counts}; {total.histories / seconds:.0f} histories/s; {len(failed)} that differ {sorted(seed for seed, _ in failed) or ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of what is repeated
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.campaigns.simulate", *sys.argv[1:]])  # noqa: S606 - this very program
    sys.exit(main())
