"""``python -m tests.campaigns.corpus_table``: replays corpora and prints a table of corpora by servers and modes.

Exit code 0 when every cell is equal, 1 when one differs, 2 when no corpus matches what was asked for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from storage_consumer.summary import RoundSummary
from tests.harness.choosing import words
from tests.harness.corpora import Corpus, CorpusSource, available, chosen
from tests.harness.expectations import can_be_equal, null_like, overwritten
from tests.harness.local_spark import local_spark
from tests.harness.replay import MODES, replayed
from tests.harness.servers import SERVERS, DatabaseServer
from tests.harness.structure_check import StructureCheck

WORKLOADS = "shop,types,text_traps,keys,keyless,hot,wide,databases,generated,gap"
FEWER_MODES = ("whole", "early")
"""With ``--all``, what is replayed on each server but the first."""
SHOWN_BY = {"again": "whole"}
"""A mode that begins with another one, and is equal only if that one is: the other is not replayed for itself then."""


@dataclass(frozen=True, slots=True)
class Column:
    """A server and a way of delivery."""

    server: DatabaseServer
    mode: str

    def __str__(self) -> str:
        """Like ``mariadb whole``."""
        return f"{self.server.name} {self.mode}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="corpora-") as name, ExitStack() as stack:
        corpora = chosen(
            available(),
            workloads=words("" if asked.all else asked.workloads),
            variants=words("" if asked.all else asked.variants),
            archs=words(asked.arch),
        )
        if not corpora:
            print("no corpus matches; set STORAGE_CONSUMER_CORPORA to the folder of unpacked corpora", file=sys.stderr)
            return 2
        kinds = asked.servers or (tuple(SERVERS) if asked.all else ("mariadb",))
        started = [stack.enter_context(SERVERS[kind]()) for kind in kinds]
        stack.enter_context(local_spark())
        structures = StructureCheck() if asked.structure else None
        return _table(corpora, _columns(started, asked), Path(name), structures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.corpus_table", description="Replay corpora and compare."
    )
    parser.add_argument("--workloads", default=WORKLOADS, help="comma-separated; empty: all")
    parser.add_argument("--variants", default="csv,json", help="comma-separated; empty: all")
    parser.add_argument("--arch", default="", help="classic or new; default: both")
    parser.add_argument(
        "--modes", type=_modes, default=(), help=f"comma-separated, of: {','.join(MODES)}; default: all"
    )
    parser.add_argument("--servers", type=_servers, default=(), help=f"of: {','.join(SERVERS)}; default: mariadb")
    parser.add_argument(
        "--structure",
        action="store_true",
        help="compare the structure as well: with what the source showed, and with the workload executed on the same server",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="all workloads and variants; unless said otherwise on all servers, all modes on the first, "
        f"{','.join(FEWER_MODES)} on the others",
    )
    return parser


def _of(names: Sequence[str], text: str) -> tuple[str, ...]:
    wrong = [part for part in words(text) if part not in names]
    if wrong:
        message = f"{', '.join(wrong)}: choose from {', '.join(names)}"
        raise argparse.ArgumentTypeError(message)
    return words(text)


def _modes(text: str) -> tuple[str, ...]:
    return _of(tuple(MODES), text)


def _servers(text: str) -> tuple[str, ...]:
    return _of(tuple(SERVERS), text)


def _columns(started: Sequence[DatabaseServer], asked: argparse.Namespace) -> list[Column]:
    """Servers by modes."""
    columns = []
    for number, server in enumerate(started):
        fewer = FEWER_MODES if asked.all and number else tuple(MODES)
        columns += [Column(server, mode) for mode in asked.modes or fewer]
    return columns


def _table(
    corpora: Sequence[CorpusSource], columns: Sequence[Column], scratch: Path, structures: StructureCheck | None
) -> int:
    """Print one line for each corpus as it is done, and what differed at the end."""
    started = time.monotonic()
    print(f"| corpus | {' | '.join(map(str, columns))} |\n|---|{'---|' * len(columns)}", flush=True)
    problems: list[str] = []
    for source in corpora:
        corpus = source.open(scratch)
        cells: dict[Column, tuple[str, str]] = {}
        for column in sorted(columns, key=lambda column: column.mode not in SHOWN_BY):
            cells[column] = _shown(cells, column) or _cell(corpus, column, scratch / "replay", structures)
        print(f"| {corpus} | {' | '.join(cells[column][0] for column in columns)} |", flush=True)
        problems += [f"{corpus} {column}: {cells[column][1]}" for column in columns if cells[column][1]]
    count = len(corpora) * len(columns)
    servers = {column.server.name: column.server.version for column in columns}
    print(f"\n{count - len(problems)} of {count} equal, {time.monotonic() - started:.0f} s,", *servers.items())
    print("\n".join(problems))
    return 1 if problems else 0


def _shown(cells: Mapping[Column, tuple[str, str]], column: Column) -> tuple[str, str] | None:
    """The cell of a column that another one of the same server has shown to be equal."""
    for mode, shown in SHOWN_BY.items():
        cell, problem = cells.get(replace(column, mode=mode), ("", "not replayed"))
        if shown == column.mode and not problem:
            return cell, ""
    return None


def _cell(corpus: Corpus, column: Column, folder: Path, structures: StructureCheck | None) -> tuple[str, str]:
    """What the table shows, and the problem in full if there is one."""
    started = time.monotonic()
    try:
        summary = replayed(corpus, column.mode, column.server, folder, structures)
    except Exception as error:  # noqa: BLE001 - one corpus that fails must not hide the others
        return "DIFFERS", f"{type(error).__name__}: {error}"
    structure = str(structures.total) if structures else ""
    return f"equal{_but(corpus, column.mode, summary)}{structure} ({time.monotonic() - started:.1f} s)", ""


def _but(corpus: Corpus, mode: str, summary: RoundSummary) -> str:
    """What could not be equal, and why."""
    text = ""
    if summary.halted:
        text += f", halted as stated: {', '.join(table.table for table in summary.halted)}"
    if lost := overwritten(corpus):
        text += f", overwritten at the source: {', '.join(sorted(lost))}"
    if null := null_like(corpus):
        text += f", the text {null} is NULL"
    if mode == "early" and not can_be_equal(corpus, rows_beyond=True):
        text += ", at the last cut (rows tell no time)"
    return text


if __name__ == "__main__":
    sys.exit(main())
