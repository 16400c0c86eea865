"""``python -m tests.campaigns handovers``: begins feeds with real exports, goes on with recorded buckets, and prints a table.

Each export of a cut is loaded, and every later cut must be equal; exports of the end show each option of Dumpling. Exit code 0 when all are
equal, 1 when one differs, 2 when nothing matches what was asked for.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from storage_consumer.errors import ExportRefused
from tests.harness.choosing import words
from tests.harness.corpora import Corpus, available, chosen
from tests.harness.dumps import Dump
from tests.harness.dumps import available as available_dumps
from tests.harness.handovers import begun, of_workload
from tests.harness.local_spark import local_spark
from tests.harness.servers import SERVERS, DatabaseServer, learn_zone

AMBIGUOUS = ("csv-tab", "csv-nodelim-nobs")
"""Exports in which a text may look like NULL, or have no end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns handovers", description=__doc__)
    parser.add_argument("--workloads", default="", help="comma-separated; empty: all that have exports")
    parser.add_argument("--variants", default="csv,json", help="of the buckets; comma-separated; empty: all")
    parser.add_argument("--dumps", default="", help="variants of the exports; comma-separated; empty: all")
    parser.add_argument("--servers", default="mariadb", help=f"of: {','.join(SERVERS)}")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="handovers-") as name, ExitStack() as stack:
        scratch = Path(name)
        dumps = available_dumps(scratch / "dumps")
        sources = chosen(available(), workloads=words(asked.workloads), variants=words(asked.variants), archs=("new",))
        servers = [stack.enter_context(SERVERS[kind]()) for kind in words(asked.servers)]
        stack.enter_context(local_spark())
        done = problems = 0
        for source in sources:
            corpus = source.open(scratch / "corpora")
            wanted = [
                d for d in of_workload(dumps, corpus.workload) if not asked.dumps or d.folder.name in words(asked.dumps)
            ]
            for dump in wanted:
                for server in servers:
                    done += 1
                    problems += not _shown(dump, corpus, server, scratch / "one")
        print(f"\n{done - problems} of {done} equal")
        return 2 if not done else 1 if problems else 0


def _shown(dump: Dump, corpus: Corpus, server: DatabaseServer, folder: Path) -> bool:
    """Print the outcome of one handover; whether it was equal."""
    began = time.monotonic()
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    folder.mkdir()
    try:
        handover = begun(dump, corpus, server, folder)
        handover.goes_on()
    except ExportRefused as refusal:
        # What Dumpling wrote so that it means two things.
        print(f"refused {corpus} {dump}: {refusal}", flush=True)
        return dump.folder.name in AMBIGUOUS
    except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
        print(f"DIFFERS {corpus} {dump} {server.kind}: {type(error).__name__}: {error}", flush=True)
        return False
    finally:
        shutil.rmtree(folder)
    print(
        f"equal   {corpus} {dump} {server.kind} from cut {handover.cut} ({time.monotonic() - began:.1f} s)", flush=True
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
