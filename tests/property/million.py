"""``python -m tests.property.million PROTOCOL…``: a million random rows through encoder and decoder, without a difference.

Exit code 1, with the file, at the first difference. The same ``--seed`` gives the same files.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence

from tests.property import canal_files, csv_files
from tests.property.cases import Case

PROTOCOLS: dict[str, Callable[[random.Random, int], Case]] = {
    "canal-json": canal_files.case,
    "csv": csv_files.case,
}
"""Protocol → one random file of about so many rows."""
_LARGEST_FILE = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.million", description=__doc__)
    parser.add_argument("protocols", nargs="+", choices=PROTOCOLS, metavar="PROTOCOL", help=", ".join(PROTOCOLS))
    parser.add_argument("--rows", type=int, default=1_000_000, help="for each protocol (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    asked = parser.parse_args(arguments)
    return max([_run(protocol, asked.rows, asked.seed) for protocol in asked.protocols])


def _run(protocol: str, rows: int, seed: int) -> int:
    chance = random.Random(seed)  # noqa: S311 - the same seed must give the same files
    began = time.monotonic()
    done = files = 0
    while done < rows:
        case = PROTOCOLS[protocol](chance, chance.choice((1, 10, 100, _LARGEST_FILE)))
        if case.found != case.expected:
            print(f"file {files}: {case.what}\nfound    {case.found}\nexpected {case.expected}", file=sys.stderr)
            return 1
        done += case.rows
        files += 1
    print(f"{protocol}: {done:,} row changes in {files:,} files without a difference, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
