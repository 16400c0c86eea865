"""Connections that break at any statement that the program sends: before the server has got it, or before its answer is heard."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from tests.campaigns.faults.trial import Line, Seen, World
from tests.campaigns.faults.wire import Cut, Verdict
from tests.campaigns.kills import twice

_OF_SESSIONS = ("SET SESSION", "SET NAMES", "SET AUTOCOMMIT")
"""Most commands are these, at the beginning of a connection."""
_SHARE = 0.2
"""Of the instants that are theirs."""


@dataclass(slots=True, kw_only=True)
class _Count:
    """What all instants of one kind came to."""

    hit: int = 0
    tried_again: int = 0
    wrong: list[str] = field(default_factory=list)


@contextmanager
def cut(world: World, watch: Cut) -> Iterator[None]:
    """`watch` has its way with the first start."""
    world.wire.watch = watch
    yield


def lost_connections(world: World, instants: int, seed: int) -> Iterator[Line]:
    """Two lines: over so many instants (0: all), one connection is broken, before or after the server's answer."""
    listed = Cut()
    seen = world.play(cut(world, listed))
    if seen.error or seen.wrong:
        yield _line("none", "a first run counts the statements", seen)
        return
    for verdict in (Verdict.BEFORE, Verdict.AFTER):
        count = _Count()
        chosen = sampled(listed.came, instants, seed)
        for at in chosen:
            _one(world, Cut(at=at, verdict=verdict), count)
        where = f"at {count.hit} of {len(listed.came)} commands, " + (
            "before the server got it" if verdict is Verdict.BEFORE else "answered, but the answer lost"
        )
        told = f"went on {count.hit - len(count.wrong)} times; {count.tried_again} began a round or a DDL again"
        yield Line(
            fault="connection lost",
            where=where,
            outcome="; ".join([told, *count.wrong]),
            equal=not count.wrong,
            kept=not count.wrong,
        )


def _one(world: World, watch: Cut, count: _Count) -> None:
    """One connection lost at one instant; the program has to go on by itself."""
    seen = world.play(cut(world, watch))
    count.hit += len(watch.came) >= watch.at
    count.tried_again += bool(seen.events)
    came = Counter(watch.came)
    if watch.verdict is Verdict.BEFORE and len(watch.came) >= watch.at:
        came[watch.came[watch.at - 1]] -= 1
    again = twice(world.server, came)
    wrong = [*seen.wrong, *([seen.told()] if seen.error else []), *([f"ran twice: {again}"] if again else [])]
    if wrong:
        what = watch.came[watch.at - 1] if len(watch.came) >= watch.at else "nothing"
        count.wrong.append(f"{watch.verdict.name.lower()} command {watch.at} ({what[:80]}): {'; '.join(wrong)}")


def sampled(came: Sequence[str], instants: int, seed: int) -> list[int]:
    """Numbers of commands, spread evenly; those that only set a session up get the smaller share. 0 instants: all."""
    if not instants or instants >= len(came):
        return list(range(1, len(came) + 1))
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    plain = [at for at, text in enumerate(came, 1) if text.startswith(_OF_SESSIONS)]
    rest = [at for at, text in enumerate(came, 1) if not text.startswith(_OF_SESSIONS)]
    few = min(len(plain), round(instants * _SHARE))
    return sorted(_spread(plain, few, dice) + _spread(rest, min(len(rest), instants - few), dice))


def _spread(numbers: Sequence[int], wanted: int, dice: random.Random) -> list[int]:
    """One of each of `wanted` stretches of about the same length."""
    borders = [len(numbers) * part // wanted for part in range(wanted + 1)] if wanted else []
    return [numbers[dice.randrange(low, high)] for low, high in pairwise(borders)]


def _line(fault: str, where: str, seen: Seen) -> Line:
    return Line(
        fault=fault,
        where=where,
        outcome="; ".join([seen.told(), *seen.wrong]),
        equal=not seen.wrong,
        kept=not seen.wrong and seen.error is None,
    )
