"""What befalls a process at its calls."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.errors import StorageUnavailable, TargetUnavailable, TransientError

ANSWERING = ("Memory", "OwnedTarget.", "WorkerTarget.", "FencedWriter.", "LaggingStorage.", "RetryingPipeline.")
"""Parts of the outside, whose calls can fail; the parts of the state begin with ``Memory``."""


class Crash(BaseException):
    """The end of a process."""


@dataclass(slots=True)
class Fault:
    """Something that befalls a process at one of its calls."""

    kind: str
    """``crash``, ``lost`` (the answer), ``away`` (what is called), or what the history does meanwhile."""
    place: str
    """Part of the call's name; empty for any."""
    left: int
    """How many such calls it lets pass, this one included."""


def fits(fault: Fault, when: str, call: str) -> bool:
    """Whether a fault can be at a call."""
    if fault.place not in call:
        return False
    if fault.kind in ("lost", "away"):
        answers = call.startswith(ANSWERING) and not call.endswith(".close")  # what closes tells of no fault
        return answers and when == ("after" if fault.kind == "lost" else "before")
    if fault.kind == "late":
        return when == "before" and call == "RetryingPipeline.run"
    if fault.kind == "send":
        return when == "before" and call == "DdlRunner.run"
    return True


def no_answer(call: str) -> TransientError:
    """The error of a call that is not answered."""
    if call.startswith("LaggingStorage."):
        return StorageUnavailable(f"no answer to {call}")
    return TargetUnavailable(f"no answer to {call}")


PLACES: Sequence[str] = (
    "", "", "", "FencedWriter.write", "FencedWriter.write", "execute_ddl", "MemoryJournal.record", "MemoryProgress.save",
    "MemoryLease.open_window", "MemoryLease.acquire", "MemoryProgress.load", "LaggingStorage.", "DdlRunner.run", "fence",
    "RetryingPipeline.run",
)  # fmt: skip
"""Where a process can be hit."""
PAUSES: Sequence[str] = (
    "",
    "",
    "FencedWriter.write",
    "FencedWriter.write",
    "execute_ddl",
    "execute_ddl",
    "Memory",
)
"""Where it can be paused while another one takes over."""


LOADS: Sequence[str] = (
    "MemoryLoads.begin", "MemoryLoads.advance", "MemoryLoads.finish", "MemoryLoads.joined", "MemoryLoads.", "FencedWriter.write",
    "execute_ddl", "",
)  # fmt: skip
"""Where a process that loads tables can be hit, or paused."""


def some_faults(dice: random.Random, *, nested: bool, loads: bool = False) -> list[Fault]:
    """What befalls a process in one round; `nested`: another one is paused meanwhile; `loads`: it loads tables."""
    kinds = ["crash", "crash", "lost", "lost", "away", "late", "send", "show"]
    kinds += [] if nested else ["pause", "pause", "pause", "pause"]
    count = dice.choice((0, 1, 1, 1, 2, 2))
    faults = []
    for _ in range(count):
        kind = dice.choice(kinds)
        places = LOADS if loads and dice.random() < 0.5 else PAUSES if kind == "pause" else PLACES
        place = "" if kind in ("late", "send") else dice.choice(places)
        most = 40 if kind not in ("late", "send") and not place else 2
        faults.append(Fault(kind, place, dice.randint(1, most)))
    return faults
