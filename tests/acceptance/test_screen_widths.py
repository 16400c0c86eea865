"""What the commands that read the target show on terminals of all widths, with names of wide characters."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unicodedata import east_asian_width

import pytest

from tests.harness.program import ROOT, command, program, run_arguments
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts
from tests.harness.terminal import terminal

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance]
WIDE = "商店.订单和很长的名字"
REFUSED = "ALTER TABLE `订单和很长的名字` ADD COLUMN `备注` VARCHAR(20) COMMENT '客户说的话都写在这里很长很长' AFTER `nowhere`"
WIDTHS = (40, 80, 120, 200)


def shown(columns: int, *words: str) -> list[str]:
    """The lines that a command writes to a terminal of this width, before the terminal wraps any."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    with terminal(columns) as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "storage_consumer", *words, "--color=never"],
            cwd=ROOT,
            env={**kept, "TERM": "xterm"},
            stdout=screen.stream,
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            screen.show()
        screen.show()
        return screen.written.replace("\r", "").splitlines()


def width(text: str) -> int:
    """The columns that a terminal needs."""
    return sum(2 if east_asian_width(character) in "FW" else 1 for character in text)


def too_wide(lines: list[str], columns: int) -> list[str]:
    """Lines that are wider than the terminal although they could be broken: neither a command, nor one word."""
    return [
        line
        for line in lines
        if width(line) > columns
        and "storage-consumer " not in line
        and not line.lstrip().startswith("--table ")
        and len(line.split()) > 1
    ]


@pytest.mark.slow
def test_widths(mariadb: DatabaseServer) -> None:
    """Each line fits, each table's name and each command is whole, and a pipe gets everything, a row a line."""
    # No line is broken in a path, so this one has to be short.
    with TemporaryDirectory() as folder:
        _fits_all_widths(mariadb, Path(folder))


def _fits_all_widths(mariadb: DatabaseServer, folder: Path) -> None:
    bucket = SmallBucket(root=folder / "bucket")
    bucket.create("d.plain", WIDE)
    for table in ("d.plain", WIDE):
        bucket.rows(table, 1, row(table, 2, "1", '"一"'))
    bucket.schema(WIDE, ts(4), REFUSED, 5)
    bucket.metadata(ts(6))
    (folder / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    given = run_arguments(bucket, mariadb)
    target = ["--downstream-uri", mariadb.uri]
    plan_first = {columns: shown(columns, "plan", *given) for columns in WIDTHS}
    with program([*given, "--once"], folder / "log") as running:
        assert running.end() == 4
    steps = [
        line.removeprefix("  next: ")
        for line in command("status", server=mariadb).stdout.splitlines()
        if line.startswith("  next: ")
    ]
    assert steps
    for columns in WIDTHS:
        screens = {
            "status": shown(columns, "status", "--all", *target),
            "table": shown(columns, "table", "--all", *target),
            "ddl": shown(columns, "ddl", *target),
            "history": shown(columns, "history", *target),
            "versions": shown(columns, "history", "--table", WIDE, *target),
            "plan": plan_first[columns],
            "inspect": shown(columns, "inspect", *given[:3], "--tz", "UTC"),
        }
        assert {name: too_wide(lines, columns) for name, lines in screens.items() if too_wide(lines, columns)} == {}
        for name, lines in screens.items():
            text = "\n".join(lines)
            assert WIDE in text or name == "versions", (name, columns, text)
            assert all(shlex.split(line) for line in lines if line.strip().startswith("storage-consumer "))
        assert [line.removeprefix("  next: ") for line in screens["status"] if line.startswith("  next: ")] == steps
    pipe = command("history", server=mariadb).stdout
    assert [line for line in pipe.splitlines() if WIDE in line and REFUSED in line]
    assert REFUSED in command("status", server=mariadb).stdout
