"""``python -m tests.campaigns handovers``: begins feeds with real exports, goes on with recorded buckets, and prints a table.

Each export of a cut is loaded, with its views and without, and every later cut must be equal, of which each is another program's; exports of the end
show each option of Dumpling. Where Dumpling wrote none of a recording, exports of each of its cuts are made of the rows that it had then, in six forms. Exports of chosen commits
of a history go on with a bucket that is made of it, on TiDB where there is one: rows and structures must be equal at its end, and the journal
must show that each statement took effect once. Exit code 0 when all are equal, 1 when one differs, 2 when nothing matches what was asked for.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from storage_consumer.errors import ExportRefused
from storage_consumer.target.row_statements import batched
from tests.harness.choosing import words
from tests.harness.corpora import Corpus, Cut, GoldenColumn, GoldenTable, available, chosen
from tests.harness.dumps import Dump
from tests.harness.dumps import available as available_dumps
from tests.harness.handover_history import History, histories, journal_faults, of_history, recorded
from tests.harness.handovers import begun, of_workload, views_in
from tests.harness.local_spark import local_spark
from tests.harness.replay import NotEqual
from tests.harness.servers import KINDS, SERVERS, DatabaseServer, learn_zone
from tests.harness.structure_check import StructureCheck

_HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
_NUMBERS = ("int", "bigint")
_TEXTS = ("varchar", "datetime")
_FILE_ROWS = 2
"""Rows of a file where there are several."""
FORMS: Mapping[str, Sequence[str]] = {
    "sql": (),
    "sql-complete": ("--complete-insert",),
    "sql-r2-gzip": ("-r", str(_FILE_ROWS), "--compress", "gzip"),
    "csv": ("--filetype", "csv"),
    "csv-nohead": ("--filetype", "csv", "--no-header"),
    "csv-r2-gzip": ("--filetype", "csv", "-r", str(_FILE_ROWS), "--compress", "gzip"),
}
"""Name of a form → the options with which Dumpling would write it."""


def golden_exports(corpus: Corpus, folder: Path) -> Iterator[Dump]:
    """Write an export of each cut in each form, below a folder. Raises `ValueError` for a type that is not written here."""
    for cut in corpus.cuts:
        for form in FORMS:
            yield _export(corpus, cut, form, folder / corpus.workload / f"{form}-cut{cut.number + 1}")


def _export(corpus: Corpus, cut: Cut, form: str, folder: Path) -> Dump:
    (folder / "dump").mkdir(parents=True)
    tables = corpus.golden(cut)
    # Those without a table, too: the recording has a folder of each.
    created = {path.split("/")[0] for path in cut.files if "/meta/" in path}
    for schema in created | {table.schema for table in tables}:
        text = f"{_HEAD}CREATE DATABASE `{schema}` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */;\n"
        _write(folder / "dump" / f"{schema}-schema-create.sql", text, form)
    for table in tables:
        _write(folder / "dump" / f"{table.name}-schema.sql", _HEAD + _create(table), form)
        _write_rows(table, folder / "dump", form)
    pos = f"Started dump at: 2026-11-22 20:40:44\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {cut.checkpoint_ts}\n\tGTID:\n\n"
    (folder / "dump" / "metadata").write_text(f"{pos}Finished dump at: 2026-11-22 20:40:46\n", encoding="utf-8")
    about = {"command": ["dumpling", "-o", "dump", *FORMS[form]], "exit": 0}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return Dump(folder)


def _create(table: GoldenTable) -> str:
    lines = [_column(column) for column in table.columns]
    lines += [f"  UNIQUE KEY `{column.name}` (`{column.name}`)" for column in table.columns if column.key == "UNI"]
    if table.primary_key:
        lines.append(f"  PRIMARY KEY ({', '.join(f'`{name}`' for name in table.primary_key)})")
    body = ",\n".join(lines)
    return f"CREATE TABLE `{table.table}` (\n{body}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;\n"


def _column(column: GoldenColumn) -> str:
    if column.type.partition("(")[0] not in _NUMBERS + _TEXTS or column.key not in ("", "PRI", "UNI"):
        raise ValueError(f"no export is made of a column {column}")
    null = "DEFAULT NULL" if column.nullable else "NOT NULL"
    more = " AUTO_INCREMENT" if column.extra == "auto_increment" else ""
    return f"  `{column.name}` {column.type} {null}{more}"


def _write_rows(table: GoldenTable, folder: Path, form: str) -> None:
    rows, texts = list(table.rows()), [column.type.partition("(")[0] in _TEXTS for column in table.columns]
    names = [column.name for column in table.columns]
    is_csv = form.startswith("csv")
    many = _FILE_ROWS if "-r2" in form else max(1, len(rows))
    for number, part in enumerate(batched(rows, many)):
        if is_csv:
            head = [] if "nohead" in form else [",".join(f'"{name}"' for name in names)]
            text = "\r\n".join([*head, *(",".join(map(_in_csv, row, texts)) for row in part)]) + "\r\n"
        else:
            columns = f" ({','.join(f'`{name}`' for name in names)})" if "complete" in form else ""
            values = ",\n".join(f"({','.join(map(_in_sql, row, texts))})" for row in part)
            text = f"{_HEAD}INSERT INTO `{table.table}`{columns} VALUES\n{values};\n"
        _write(folder / f"{table.name}.{number:09d}.{'csv' if is_csv else 'sql'}", text, form)


def _in_sql(value: Any, is_text: bool) -> str:  # noqa: FBT001 - mapped over columns
    return "NULL" if value is None else _quoted(value, is_text, "'")


def _in_csv(value: Any, is_text: bool) -> str:  # noqa: FBT001 - mapped over columns
    return r"\N" if value is None else _quoted(value, is_text, '"')


def _quoted(value: Any, is_text: bool, quote: str) -> str:  # noqa: FBT001 - mapped over columns
    if not isinstance(value, str):
        raise TypeError(f"no export is made of a value {value}")
    escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}" if is_text else value


def _write(path: Path, text: str, form: str) -> None:
    """Write a file; those of rows and of structures are compressed alike."""
    if "gzip" in form:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_bytes(text.encode())


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
