"""``python -m tests.corpus_table``: replays corpora and prints a table of corpora by modes.

Exit code 0 when every cell is equal, 1 when one differs, 2 when no corpus matches what was asked for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from storage_consumer.summary import RoundSummary
from tests import servers
from tests.corpora import Corpus, CorpusSource, available, chosen
from tests.local_spark import local_spark
from tests.replay import MODES, replayed

WORKLOADS = "shop,types,text_traps,keys,keyless,hot,wide,databases,generated,gap"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="corpora-") as name:
        scratch = Path(name)
        corpora = chosen(
            available(),
            workloads=_list(asked.workloads),
            variants=_list(asked.variants),
            archs=_list(asked.arch),
        )
        if not corpora:
            print("no corpus matches; set STORAGE_CONSUMER_CORPORA to the folder of unpacked corpora", file=sys.stderr)
            return 2
        kind = {"mariadb": servers.mariadb, "mysql": servers.mysql}[asked.server]
        with kind() as server, local_spark():
            return _table(corpora, _list(asked.modes), server, scratch)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus_table", description="Replay corpora and compare.")
    parser.add_argument("--workloads", default=WORKLOADS, help="comma-separated; empty: all")
    parser.add_argument("--variants", default="csv,json", help="comma-separated; empty: all")
    parser.add_argument("--arch", default="", help="classic or new; default: both")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated, of: %(default)s")
    parser.add_argument("--server", default="mariadb", choices=("mariadb", "mysql"))
    return parser


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _table(corpora: Sequence[CorpusSource], modes: Sequence[str], server: servers.DatabaseServer, scratch: Path) -> int:
    """Print one line for each corpus as it is done, and what differed at the end."""
    started = time.monotonic()
    print(f"| corpus | {' | '.join(modes)} |\n|---|{'---|' * len(modes)}", flush=True)
    problems: list[str] = []
    for source in corpora:
        corpus = source.open(scratch)
        cells = []
        for mode in modes:
            cell, problem = _cell(corpus, mode, server, scratch / "replay")
            cells.append(cell)
            problems += [f"{corpus} {mode}: {problem}"] if problem else []
        print(f"| {corpus} | {' | '.join(cells)} |", flush=True)
    count = len(corpora) * len(modes)
    seconds = time.monotonic() - started
    print(f"\n{count - len(problems)} of {count} equal, {seconds:.0f} s, {server.kind} {server.version}")
    print("\n".join(problems))
    return 1 if problems else 0


def _cell(corpus: Corpus, mode: str, server: servers.DatabaseServer, folder: Path) -> tuple[str, str]:
    """What the table shows, and the problem in full if there is one."""
    started = time.monotonic()
    try:
        summary = replayed(corpus, mode, server, folder)
    except Exception as error:  # noqa: BLE001 - one corpus that fails must not hide the others
        return "DIFFERS", f"{type(error).__name__}: {error}"
    return f"equal{_halted(summary)} ({time.monotonic() - started:.1f} s)", ""


def _halted(summary: RoundSummary) -> str:
    names = ", ".join(table.table for table in summary.halted)
    return f", halted as stated: {names}" if names else ""


if __name__ == "__main__":
    sys.exit(main())
