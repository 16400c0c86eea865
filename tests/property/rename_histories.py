"""``python -m tests.property.rename_histories``: random histories of renames through the whole driver, held against a model.

Each history is a list of numbers; each number says by itself what happens next, so that any part of the list is a history too
and one that fails can be cut down. Planner, consumers, manager, journal and state are the real ones, the rest are memory twins.
After every round all tables must be as the model says for that checkpoint, and no statement may have taken effect twice.

Exit code 0 when all histories agree, 1 when one does not: its story is printed, cut down to what is needed.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial

from tests.property.renaming import Counts, run
from tests.property.renaming_source import ARCHS, Arch
from tests.property.shrinking import Noted, Run, cut_down, tell

RENAMES = 200
SHRINKING_SECONDS = 120.0


def of_seed(seed: int) -> tuple[Arch, Iterator[int]]:
    """The architecture and the endless numbers of a history."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    arch = dice.choice(ARCHS)
    return arch, iter(lambda: dice.getrandbits(48), -1)


def runner(arch: Arch) -> Run:
    """What runs histories of one architecture."""
    return partial(run, arch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.rename_histories", description="Random renames.")
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--renames", type=int, default=RENAMES, help="of each history, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first history; each next one has the next")
    parser.add_argument(
        "--seconds", type=float, default=SHRINKING_SECONDS, help="for cutting the first failing one down"
    )
    asked = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    total, began, failed = Counts(), time.monotonic(), list[int]()
    for seed in range(asked.seed, asked.seed + asked.histories):
        arch, endless = of_seed(seed)
        numbers = Noted(endless)
        try:
            total.add(run(arch, numbers, asked.renames).counts)
        except Exception as fault:  # noqa: BLE001 - any fault is one
            print(f"seed {seed} ({arch}), {len(numbers.taken)} numbers: {type(fault).__name__}: {fault}", flush=True)
            if not failed and asked.seconds:
                tell(runner(arch), cut_down(runner(arch), numbers.taken, asked.seconds))
            failed.append(seed)
        if total.histories % 25 == 0:
            print(f"{total.histories} histories, {time.monotonic() - began:.0f} s", flush=True)
    counts = ", ".join(f"{getattr(total, field.name)} {field.name}" for field in fields(total))
    print(f"{counts}; {len(failed)} that differ {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
