"""``python -m tests.campaigns.fuzz TARGET… --minutes 10``: random, cut and mutated files against the parts that read them.

Exit code 0 when each target withstood its minutes, 1 when an input brought out what must not be; the input is printed. The
seeds are files of the corpora (``$STORAGE_CONSUMER_CORPORA``, else ``fixtures/``). The same ``--seed`` gives the same inputs.
"""

from __future__ import annotations

import argparse
import resource
import sys
import traceback
from collections.abc import Sequence

from tests.campaigns.fuzzing import canal_json, csv, growth, paths, schema
from tests.campaigns.fuzzing.engine import Report, Target, fuzz

TARGETS = {module.TARGET.name: module.TARGET for module in (canal_json, csv, growth, paths, schema)}
MEMORY = 512 << 20
"""Bytes of address space that the process may take."""
_SHOWN = 4000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="+", choices=TARGETS, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: %(default)s)")
    asked = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return max(_run(TARGETS[name], asked.minutes * 60, asked.seed) for name in asked.targets)


def _run(target: Target, seconds: float, seed: int) -> int:
    report = fuzz(target, seconds=seconds, seed=seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{target.name}: {report.inputs:,} inputs in {report.seconds:.0f} s, {len(report.outcomes)} kinds of outcome, "
        f"slowest {report.slowest * 1000:.0f} ms, peak memory {peak} MB",
        flush=True,
    )
    return _show(report)


def _show(report: Report) -> int:
    """Print the commonest outcomes, and the finding if there is one."""
    for outcome, count in report.outcomes.most_common(10):
        print(f"  {count:>9,}  {outcome}")
    if (finding := report.finding) is None:
        return 0
    print(f"input {finding.number}, {len(finding.data)} bytes: {finding.data[:_SHOWN]!r}", file=sys.stderr)
    traceback.print_exception(finding.error)
    return 1


if __name__ == "__main__":
    sys.exit(main())
