"""Exports made of the rows of a recording's cuts, in the form of Dumpling's: for workloads that have none by Dumpling itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from storage_consumer.target.row_statements import batched
from tests.harness.corpora import Corpus, Cut, GoldenColumn, GoldenTable
from tests.harness.dumps import Dump

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
