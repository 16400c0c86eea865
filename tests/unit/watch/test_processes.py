"""What /proc shows of this program's processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.watch import collector


def _process(proc: Path, pid: int, name: str, parent: int) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    columns = ["S", str(parent), *["0"] * 19, "3"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(columns)}", encoding="utf-8")


def _unless_ended(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(path: Any = ".") -> Any:
        if str(path).endswith("/7/fd"):
            raise ProcessLookupError
        return real(path)

    return read


def test_a_process_that_ends_meanwhile_spoils_no_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may be gone by the time that its connections are looked at; the others count."""
    _process(tmp_path, os.getpid(), "python", 1)
    _process(tmp_path, 7, "java", os.getpid())
    monkeypatch.setattr(collector, "_PROC", tmp_path)
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, _unless_ended(getattr(os, name)))
    assert collector.processes(3306).counts == {"driver": 1, "jvm": 1}
