"""Small exports of tables with id and name, as Dumpling writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.harness.small_bucket import ts

HEAD = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
BODY = "  `id` int NOT NULL,\n  `name` varchar(20) DEFAULT NULL,\n  PRIMARY KEY (`id`)"


def export(
    folder: Path, tick: int, tables: Mapping[str, Sequence[str]], *, finished: bool = True, body: str = BODY
) -> Path:
    """An export of tables of database d, each with these columns: for each the rows of its files, as of a tick."""
    folder.mkdir(exist_ok=True)
    (folder / "d-schema-create.sql").write_text(f"{HEAD}CREATE DATABASE `d`;\n", encoding="utf-8")
    for table, parts in tables.items():
        schema = (
            f"{HEAD}CREATE TABLE `{table}` (\n{body}\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;\n"
        )
        (folder / f"d.{table}-schema.sql").write_text(schema, encoding="utf-8")
        for number, rows in enumerate(parts):
            content = f"{HEAD}INSERT INTO `{table}` VALUES\n{rows};\n"
            (folder / f"d.{table}.{number:09d}.sql").write_text(content, encoding="utf-8")
    if finished:
        text = f"Started dump at: 2026-11-22 20:40:44\nSHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {ts(tick)}\n\tGTID:\n\n"
        (folder / "metadata").write_text(f"{text}Finished dump at: 2026-11-22 20:40:46\n", encoding="utf-8")
    return folder
