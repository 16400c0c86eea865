"""The pages of docs/reference are what the tables in the code make of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage_consumer.cli.endings import ExitCode
from storage_consumer.config.options import OPTIONS
from storage_consumer.operating.checks import CHECKS
from storage_consumer.target.ddl.catalogue import DIFFERENCES

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("options.md", "differences.md", "errors.md", "metrics.md", "checks.md")


def _reference(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "conf" / "reference.py"), *words],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages as the code makes them now."""
    folder = tmp_path_factory.mktemp("reference")
    done = _reference("--folder", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_stale(made: Path, page: str) -> None:
    """Each page in the repository is the one that is made now; if not, run python conf/reference.py."""
    stored = ROOT / "docs" / "reference" / page
    assert stored.read_text(encoding="utf-8") == (made / page).read_text(encoding="utf-8")


def test_no_page_is_left_over(made: Path) -> None:
    """The folder holds the generated pages, and the one that declares the events."""
    assert sorted(path.name for path in made.iterdir()) == sorted(PAGES)
    assert sorted(path.name for path in (ROOT / "docs" / "reference").iterdir()) == sorted((*PAGES, "log-events.md"))


def test_check_names_what_is_stale(tmp_path: Path) -> None:
    """A page that is missing or differs is named, nothing is written, and the exit code is 1; else it is 0."""
    _reference("--folder", str(tmp_path))
    assert _reference("--check", "--folder", str(tmp_path)).returncode == 0
    (tmp_path / "errors.md").write_text("old", encoding="utf-8")
    (tmp_path / "options.md").unlink()
    done = _reference("--check", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        str(tmp_path / "options.md"),
        str(tmp_path / "errors.md"),
    ]
    assert (tmp_path / "errors.md").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("options.md", [f"* `--{each.name}`" if each.flag else f"* `{each.environment}`" for each in OPTIONS]),
        ("differences.md", [f"* {name}: " for name in DIFFERENCES]),
        ("checks.md", [f"* `{name}` (" for name in CHECKS]),
        ("errors.md", [f"| {code:d} | " for code in ExitCode if code != ExitCode.INTERRUPTED]),
    ],
)
def test_pages_leave_nothing_out(made: Path, page: str, names: list[str]) -> None:
    """Whatever the tables hold stands in its page."""
    text = (made / page).read_text(encoding="utf-8")
    assert [name for name in names if name not in text] == []
