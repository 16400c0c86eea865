"""``python -m tests.campaigns handovers``: begins feeds with real exports, goes on with recorded buckets, and prints a table.

Each export of a cut is loaded, with its views and without, and every later cut must be equal, of which each is another program's; exports of the end
show each option of Dumpling. Where Dumpling wrote none of a recording, exports of each of its cuts are made of the rows that it had then, in six forms. Exports of chosen commits
of a history go on with a bucket that is made of it, on TiDB where there is one: rows and structures must be equal at its end, and the journal
must show that each statement took effect once. Exit code 0 when all are equal, 1 when one differs, 2 when nothing matches what was asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from storage_consumer.errors import ExportRefused
from tests.harness.choosing import words
from tests.harness.corpora import Corpus, available, chosen
from tests.harness.dumps import Dump
from tests.harness.dumps import available as available_dumps
from tests.harness.golden_exports import golden_exports
from tests.harness.handover_history import History, histories, journal_faults, of_history, recorded
from tests.harness.handovers import begun, of_workload, views_in
from tests.harness.local_spark import local_spark
from tests.harness.replay import NotEqual
from tests.harness.servers import KINDS, SERVERS, DatabaseServer, learn_zone
from tests.harness.structure_check import StructureCheck

AMBIGUOUS = ("csv-tab", "csv-nodelim-nobs")
"""Exports in which a text may look like NULL, or have no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """An export that a feed begins with."""

    dump: Dump
    corpus: Corpus
    play: Callable[[DatabaseServer, Path], str]
    """Play it on a server, with all files in a folder, and return from where on; raises where it is not equal."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why tables halted that may."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns handovers", description=__doc__)
    parser.add_argument("--workloads", default="", help="comma-separated; empty: all that have exports")
    parser.add_argument("--variants", default="csv,json", help="of the buckets; comma-separated; empty: all")
    parser.add_argument("--archs", default="new", help="of the buckets: new,classic")
    parser.add_argument("--dumps", default="", help="patterns of the exports' variants; comma-separated; empty: all")
    parser.add_argument("--servers", default="mariadb", help=f"of: {','.join(SERVERS)}")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="handovers-") as name, ExitStack() as stack:
        scratch = Path(name)
        dumps, patterns = available_dumps(scratch / "dumps"), words(asked.dumps) or ("*",)
        wanted = [dump for dump in dumps if _is_one_of(dump, patterns)]
        servers = [stack.enter_context(SERVERS[kind]()) for kind in words(asked.servers)]
        sources = chosen(
            available(), workloads=words(asked.workloads), variants=words(asked.variants), archs=words(asked.archs)
        )
        corpora = [source.open(scratch / "corpora") for source in sources]
        made = _of_goldens(dumps, corpora, scratch / "made")
        cases = _of_recordings(wanted, corpora) + [case for case in made if _is_one_of(case.dump, patterns)]
        cases += _of_histories(wanted, words(asked.workloads), scratch / "histories")
        stack.enter_context(local_spark())
        outcomes = [_shown(case, server, scratch / "one") for case in cases for server in servers]
        print(f"\n{sum(outcomes)} of {len(outcomes)} equal")
        for reason, count in sum((case.reasons for case in cases), Counter[str]()).most_common():
            print(f"{count} halted: {reason}")
        return 2 if not outcomes else 0 if all(outcomes) else 1


def _is_one_of(dump: Dump, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(dump.folder.name, pattern) for pattern in patterns)


def _of_recordings(dumps: Sequence[Dump], corpora: Sequence[Corpus]) -> list[_Case]:
    """Exports of cuts of recordings, and those with views without them too."""
    # Its cuts are others than those of which the exports are.
    alike = [corpus for corpus in corpora if corpus.variant != "ddl-at-checkpoint"]
    pairs = [(dump, corpus) for corpus in alike for dump in of_workload(dumps, corpus.workload)]
    without = [_of_cut(*pair, views=False) for pair in pairs if views_in(pair[0].folder / "dump")]
    return [_of_cut(*pair) for pair in pairs] + without


def _of_goldens(dumps: Sequence[Dump], corpora: Sequence[Corpus], folder: Path) -> list[_Case]:
    """Exports that are made of the rows at the cuts of those recordings of which Dumpling wrote none."""
    return [
        _of_cut(dump, corpus)
        for corpus in corpora
        if not of_workload(dumps, corpus.workload)
        for dump in golden_exports(corpus, folder / corpus.arch / corpus.variant)
    ]


def _of_cut(dump: Dump, corpus: Corpus, *, views: bool = True) -> _Case:
    def play(server: DatabaseServer, folder: Path) -> str:
        handover = begun(dump, corpus, server, folder, views=views)
        reasons.update(handover.starts_anew())
        return f"cut {handover.cut}{'' if views else ' without views'}"

    reasons = Counter[str]()
    return _Case(dump=dump, corpus=corpus, play=play, reasons=reasons)


def _of_histories(dumps: Sequence[Dump], workloads: Sequence[str], folder: Path) -> list[_Case]:
    """Exports of commits of histories, whose buckets are made in a folder."""
    # TiDB is what the statements were written for.
    source = "tidb" if "tidb" in KINDS else "mariadb"
    check = StructureCheck(against_golden=False)
    found = [history for history in histories(dumps) if not workloads or history.workload in workloads]
    if not found:
        return []
    with SERVERS[source]() as server:
        corpora = [recorded(history, server, folder / history.workload) for history in found]

    def case(history: History, dump: Dump, corpus: Corpus) -> _Case:
        def play(server: DatabaseServer, folder: Path) -> str:
            check.learn(corpus, server)
            handover = of_history(history, dump, corpus, server, folder, check)
            handover.goes_on()
            if faults := journal_faults(history, dump, server):
                raise NotEqual("\n".join(faults))
            return f"TSO {dump.read().snapshot}"

        return _Case(dump=dump, corpus=corpus, play=play)

    return [
        case(history, dump, corpus)
        for history, corpus in zip(found, corpora, strict=True)
        for dump in of_workload(dumps, history.workload)
    ]


def _shown(case: _Case, server: DatabaseServer, folder: Path) -> bool:
    """Print the outcome of one handover; whether it was equal."""
    began, corpus, dump = time.monotonic(), case.corpus, case.dump
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    folder.mkdir()
    try:
        start = case.play(server, folder)
    except ExportRefused as refusal:
        # What Dumpling wrote so that it means two things.
        print(f"refused {corpus} {dump}: {refusal}", flush=True)
        return dump.folder.name in AMBIGUOUS
    except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
        print(f"DIFFERS {corpus} {dump} {server.name}: {type(error).__name__}: {error}", flush=True)
        return False
    finally:
        shutil.rmtree(folder)
    print(f"equal   {corpus} {dump} {server.name} from {start} ({time.monotonic() - began:.1f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
