"""``python -m tests.campaigns.ddl_table``: what each server makes of each kind of statement, as a Markdown table.

Each kind is a small tree with rows before and after the statement, replayed by the program on a private server of each kind;
its rows, structure and journal are checked. Exit code 0 when all are as they must be, 1 when one is not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaigns.kinds.playing import ALL, GROUPS, Played, play
from tests.campaigns.kinds.story import EXECUTED, NOTHING, Kind
from tests.harness.local_spark import local_spark
from tests.harness.servers import KINDS, SERVERS

_CELL = 110


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.ddl_table", description="Statement kinds by servers."
    )
    parser.add_argument("--servers", default=",".join(KINDS), help=f"comma-separated, of: {','.join(KINDS)}")
    parser.add_argument("--kinds", default="", help="only those whose name has one of these texts")
    parser.add_argument("--full", action="store_true", help="print messages of halted tables in full")
    asked = parser.parse_args(arguments)
    kinds = [kind for kind in ALL if any(text in kind.name.casefold() for text in asked.kinds.casefold().split(","))]
    found: dict[str, dict[str, Played]] = {}
    with tempfile.TemporaryDirectory(prefix="kinds-") as folder, local_spark():
        for name in asked.servers.split(","):
            with SERVERS[name]() as server:
                found[f"{name} {server.version}"] = play(server, kinds, Path(folder))
    _print(kinds, found, 10**6 if asked.full else _CELL)
    return 1 if any(one.problems for played in found.values() for one in played.values()) else 0


def _print(kinds: Sequence[Kind], found: Mapping[str, Mapping[str, Played]], width: int) -> None:
    """One line for each kind, the sums, and what is not as it must be."""
    print(f"| statement | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for group, members in GROUPS.items():
        shown = [kind for kind in members if kind in kinds]
        print(f"| **{group}** |{' |' * len(found)}" if shown else "", end="\n" if shown else "")
        for kind in shown:
            cells = [_cell(played[kind.name], width) for played in found.values()]
            print(f"| {kind.name} | {' | '.join(cells)} |")
    print()
    for server, played in found.items():
        counts = Counter(_word(one.outcome) for one in played.values())
        print(f"{server}: {', '.join(f'{count} {word}' for word, count in sorted(counts.items()))}")
    wrong = [
        (server, name, p) for server, played in found.items() for name, one in played.items() for p in one.problems
    ]
    print(f"{len(wrong)} differences from what must be")
    for server, name, problem in wrong:
        print(f"* {server}, {name}: {problem}")


def _word(outcome: str) -> str:
    """The part of a kind's outcome that asks most of the target's operator."""
    return next(word for word in ("halted", "skipped", "rewritten", EXECUTED, NOTHING) if word in outcome)


def _cell(played: Played, width: int) -> str:
    text = played.outcome.replace("|", "\\|").replace("\n", " ")
    return ("**≠** " if played.problems else "") + (text if len(text) <= width else text[: width - 1] + "…")


if __name__ == "__main__":
    sys.exit(main())
