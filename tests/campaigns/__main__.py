"""``python -m tests.campaigns NAME …``: run a campaign by its name; ``python -m tests.campaigns`` lists them."""

from __future__ import annotations

import runpy
import sys

CAMPAIGNS = {
    "corpora": "corpus_table",
    "faults": "faults",
    "grammar": "grammar",
    "handovers": "handovers",
    "kills": "kills",
    "load-kills": "load_kills",
    "repairs": "repairs",
    "shuffles": "shuffles",
    "simulate": "simulate",
    "soak": "soak",
    "waves": "waves",
}
"""Name → module of this package that runs as a program."""


def main() -> int:
    """Run the campaign that the first argument names, with the others as its own; return its exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in CAMPAIGNS:
        print("usage: python -m tests.campaigns NAME [its options]", "names: " + ", ".join(CAMPAIGNS), sep="\n")
        return 0 if name in {"", "-h", "--help"} else 2
    del sys.argv[1]
    runpy.run_module(f"tests.campaigns.{CAMPAIGNS[name]}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
