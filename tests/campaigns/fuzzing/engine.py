"""Mutated files against one target: only the program's own errors may come of them, in time and within the memory limit."""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

SECONDS_PER_INPUT = 5.0
LARGEST = 1 << 16
"""Bytes of a generated input."""
POOL = 4000
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\\b0x[0-9a-f]+|\d+")
INTERESTING = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\r\n",
    b'"',
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"[",
    b"[" * 5000,
    b"9" * 5000,
)
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"18446744073709551615",
    b"18446744073709551616",
    b"null",
    b"true",
    b'""',
    b"[]",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One part of the program that reads what TiCDC wrote."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    """Valid inputs, of which the others are made."""
    check: Callable[[bytes], str]
    """Reads one input; what came of it, in few words. Raises where that may not come of any input.

    An input with a new answer is mutated further, so an answer should name the kind of outcome, without the input's values.
    """
    pieces: Sequence[bytes] = ()
    """Texts that mean something here, put into inputs."""


def refused(error: Exception, *named: str) -> str:
    """The outcome of an input that was refused with `error`, whose text must hold `named`: the file, the place in it."""
    text = str(error)
    if missing := [name for name in named if name not in text]:
        raise AssertionError(f"the error does not name {missing}: {text}") from error
    for name in named:
        text = text.replace(name, "")
    return f"refused: {_VALUES.sub('…', text)[:60]}"


class Hang(BaseException):
    """One input took longer than `SECONDS_PER_INPUT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An input that brought out what must not be."""

    number: int
    data: bytes
    error: BaseException


@dataclass(slots=True)
class Report:
    """What one run saw."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    """Seconds of the slowest input."""
    outcomes: Counter[str] = field(default_factory=Counter)
    finding: Finding | None = None


def fuzz(target: Target, *, seconds: float, seed: int, inputs: int | None = None) -> Report:
    """Feed `target` until the time is over, `inputs` were tried, or one is found that it should have withstood."""
    dice = random.Random(seed)  # noqa: S311 - the same seed must give the same inputs
    pool = [bytes(content[:LARGEST]) for content in target.seeds()]
    report = Report()
    began = time.monotonic()
    for data in _inputs(dice, pool, target.pieces):
        report.seconds = time.monotonic() - began
        if report.seconds >= seconds or report.inputs == inputs:
            return report
        started = time.monotonic()
        try:
            with _limited(SECONDS_PER_INPUT):
                outcome = target.check(data)
        except (Exception, Hang) as error:  # noqa: BLE001 - whatever it is, it is what is searched for
            report.finding = Finding(number=report.inputs, data=data, error=error)
            return report
        report.slowest = max(report.slowest, time.monotonic() - started)
        report.inputs += 1
        if outcome not in report.outcomes and len(pool) < POOL:
            pool.append(data)
        report.outcomes[outcome] += 1
    return report


def _inputs(dice: random.Random, pool: list[bytes], pieces: Sequence[bytes]) -> Iterator[bytes]:
    """All that is in `pool` as it is, then mutations of it and random bytes without end."""
    yield from list(pool)
    while True:
        if not pool or dice.random() < 0.05:
            yield dice.randbytes(dice.randrange(200))
            continue
        data = dice.choice(pool)
        for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
            data = _mutated(dice, data, pool, pieces)
        yield data[:LARGEST]


def _mutated(dice: random.Random, data: bytes, pool: list[bytes], pieces: Sequence[bytes]) -> bytes:
    """`data` after one change."""
    at = dice.randrange(len(data) + 1)
    end = min(len(data), at + dice.choice((1, 1, 2, 5, 20, 200)))
    other = dice.choice(pool)
    text = dice.choice((*INTERESTING, *NUMBERS, *pieces))
    before, cut, after = data[:at], data[at:end], data[end:]
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: before,
        lambda: before + after,
        lambda: before + cut + cut + after,
        lambda: before + other[dice.randrange(len(other) + 1) :],
        lambda: before + bytes(byte ^ 1 << dice.randrange(8) for byte in cut) + after,
        lambda: before + dice.randbytes(len(cut)) + after,
        lambda: before + text + after,
        lambda: before + text + cut + after,
    )
    return dice.choice(changes)()


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `Hang` in the main thread when the block takes longer."""

    def hang(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {seconds:g} s for one input")

    before = signal.signal(signal.SIGALRM, hang)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
