"""Measures the program beside what the same machine could do at best, in the same run, and checks every result.

Backlogs are applied by one round in a warm session, from an empty target; the reference is measured right before each run. Where
that is LOAD DATA, both are final rows a second, so that 1 would be as fast as loading the final rows with all other work done
already; `events_over_reference` in the JSON is row changes a second over the same. Exit code 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.limit import WrongResult
from tests.benchmarks.lines import LINES
from tests.benchmarks.measuring import WARM_UP, Asked, bench
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
    earlier = json.loads(given.compare.read_text(encoding="utf-8")) if given.compare else None
    names = list(LINES) if "all" in given.lines else given.lines
    try:
        results, versions = _measured(names, asked)
    except WrongResult as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        text = json.dumps(document(results, versions), indent=2)
        given.json.write_text(f"{text}\n", encoding="utf-8")
    if earlier:
        print(compared(results, earlier))
    return 0


def _measured(names: Sequence[str], asked: Asked) -> tuple[list[Result], dict[str, str]]:
    """Measure line by line, printing each."""
    results: list[Result] = []
    print(HEADING, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        bench(Path(folder), min(WARM_UP, asked.events)) as ready,
    ):
        for name in names:
            for result in LINES[name].measure(name, ready, asked):
                results.append(result)
                print(line(result), breakdown(result), sep="\n" if result.stages else "", flush=True)
        for result in memory_lines(results):
            results.append(result)
            print(line(result), flush=True)
        return results, ready.versions()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


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
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--compare", type=Path, help="an earlier file of figures to compare with")
    parser.add_argument("--seed", type=int, default=7)
    return parser


if __name__ == "__main__":
    sys.exit(main())
