"""Measures the program beside what the same machine could do at best, in the same run, and checks every result.

Backlogs are applied by one round in a warm session, from an empty target; the reference is measured right before each run. Where
that is LOAD DATA, both are final rows a second, so that 1 would be as fast as loading the final rows with all other work done
already; `events_over_reference` in the JSON is row changes a second over the same. Exit code 1 when a result was wrong: its line is
left out, the others go on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.limit import WrongResult
from tests.benchmarks.lines import LINES
from tests.benchmarks.measuring import WARM_UP, Asked, Bench, bench
from tests.benchmarks.report import HEADING, breakdown, compared, document, line
from tests.benchmarks.results import Result, memory_lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    given = _parser().parse_args(arguments)
    asked = Asked(
        events=given.events,
        runs=given.runs,
        tables=given.tables,
        files=given.files,
        stored=given.stored,
        stored_remote=given.stored_remote,
        cycles=given.cycles,
        seed=given.seed,
        profiled=given.breakdown,
    )
    names = list(LINES) if "all" in given.lines else given.lines
    results: list[Result] = []
    wrong = 0
    print(HEADING, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        bench(Path(folder), min(WARM_UP, asked.events), scraped=given.scraped) as ready,
    ):
        for name in names:
            found = _measured(name, ready, asked)
            wrong += not found
            results += found
            _tell(found)
            _write(given.json, results, ready)  # each time: what was measured is not lost with what comes after it
        memory = memory_lines(results)
        _tell(memory)
        _write(given.json, [*results, *memory], ready)
    if given.compare:
        print(compared([*results, *memory], given.compare))
    return 1 if wrong else 0


def _measured(name: str, ready: Bench, asked: Asked) -> Sequence[Result]:
    """One line's results; none if a result was wrong, which is told."""
    try:
        return LINES[name].measure(name, ready, asked)
    except WrongResult as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return []


def _tell(results: Sequence[Result]) -> None:
    for result in results:
        print(line(result), breakdown(result), sep="\n" if result.stages else "", flush=True)


def _write(file: Path | None, results: Sequence[Result], ready: Bench) -> None:
    if file:
        file.write_text(f"{json.dumps(document(results, ready.versions()), indent=2)}\n", encoding="utf-8")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _figures(name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{name} holds no figures: {error}") from error
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog="lines: " + "; ".join(f"{name}: {each.about}" for name, each in LINES.items()),
    )
    parser.add_argument(
        "lines", nargs="*", default=["all"], choices=["all", *LINES], metavar="LINE", help="which lines (default: all)"
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="row changes of a backlog (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="measured runs of each line (default: %(default)s)")
    parser.add_argument("--tables", type=int, default=1_000, help="tables of line tables (default: %(default)s)")
    parser.add_argument("--files", type=int, default=10_000, help="files of line tiny (default: %(default)s)")
    parser.add_argument(
        "--stored",
        type=_numbers,
        default="1000,10000,100000",
        help="files in a folder of line idle (default: %(default)s)",
    )
    parser.add_argument(
        "--stored-remote", type=_numbers, default="1000,10000", help="files in S3 (default: %(default)s)"
    )
    parser.add_argument("--cycles", type=int, default=15, help="rounds of each kind in lines rounds and idle")
    parser.add_argument("--breakdown", action="store_true", help="see in one more run where the CPU time goes")
    parser.add_argument(
        "--scraped", action="store_true", help="show metrics and page, and let a process ask for them every second"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--compare", type=_figures, metavar="FILE", help="an earlier file of figures to compare with")
    parser.add_argument("--seed", type=int, default=7)
    return parser


if __name__ == "__main__":
    sys.exit(main())
