"""What the repository promises about itself: sizes, places, no unfinished marks, clean lint, types and imports."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOP_LEVEL = {"pyproject.toml", "storage_consumer", "tests", "fixtures", "conf", "README.md"}
MODULE_LINES = 800
FUNCTION_LINES = 80
NESTING = 3
METHODS = 20
FIXTURE_BYTES = 10 * 1024 * 1024
PAGES = {"docs", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
"""What may stand beside them for readers."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
# Spelled apart, so that this file does not find itself.
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X\\b", "Not" + "ImplementedError")))
LEFT_OUT = re.compile(r"pytest\.(mark\.)?(" + "sk" + "ip|xf" + r"ail|importor" + r"sk" + "ip)")
QUOTED = Path("storage_consumer/decode/csv_dialect.py")
POSSESSIVE_GROUP = re.compile(r"\)([*+?]|\{\d*,\d*\})[+](?!=)")
MACHINE_PATH = re.compile(r"(?<![\w.$}~*>])/(work|farm|root|tmp|home)/[a-z.]")
TEXT_SUFFIXES = {".py", ".sh", ".toml", ".md", ".service", ".yaml", ".yml", ""}


def _tracked() -> list[Path]:
    """The files that belong to the repository: those git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _modules() -> Iterator[tuple[Path, str]]:
    return ((path, text) for path, text in _texts() if path.suffix == ".py")


def _texts() -> Iterator[tuple[Path, str]]:
    for path in _tracked():
        if path.suffix in TEXT_SUFFIXES and path.parts[0] != "fixtures":
            yield path, (ROOT / path).read_text(encoding="utf-8")


def _depth(node: ast.AST) -> int:
    """How many blocks lie inside each other below `node`; an ``elif`` is as deep as its ``if``."""
    return max((_depth_with(node, child) for child in ast.iter_child_nodes(node)), default=0)


def _depth_with(parent: ast.AST, child: ast.AST) -> int:
    if isinstance(child, FUNCTIONS):
        return 0
    is_elif = isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]
    return _depth(child) + (isinstance(child, BLOCKS) and not is_elif)


def _depth_of(source: str) -> int:
    return _depth(ast.parse(source).body[0])


def test_modules_are_short() -> None:
    """No module is longer than the limit."""
    lengths = {str(path): text.count("\n") for path, text in _modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_functions_and_classes_are_small() -> None:
    """No function is longer than the limit, signature and docstring included, or nests blocks deeper; no class of the package has more methods."""
    large = []
    for path, text in _modules():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, FUNCTIONS):
                lines, depth = (node.end_lineno or 0) - node.lineno + 1, _depth(node)
                large += [(path, node.name, lines, depth)] if lines > FUNCTION_LINES or depth > NESTING else []
            elif isinstance(node, ast.ClassDef) and path.parts[0] == "storage_consumer":
                methods = sum(isinstance(each, FUNCTIONS) for each in node.body)
                large += [(path, node.name, methods, 0)] if methods > METHODS else []
    assert large == []


@pytest.mark.parametrize(
    ("source", "depth"),
    [
        ("def f():\n pass", 0),
        ("def f():\n if a:\n  pass\n elif b:\n  pass\n elif c:\n  pass", 1),
        ("def f():\n for a in b:\n  with c:\n   while d:\n    pass", 3),
        ("def f():\n try:\n  pass\n except E:\n  if a:\n   pass", 2),
        ("def f():\n if a:\n  def g():\n   for b in c:\n    pass", 1),
    ],
)
def test_depth_counts_blocks(source: str, depth: int) -> None:
    """The ruler itself: blocks inside blocks count, an elif and an inner function's body do not."""
    assert _depth_of(source) == depth


def test_nothing_is_left_unfinished() -> None:
    """No file holds a mark of unfinished work."""
    assert {str(path) for path, text in _texts() if UNFINISHED.search(text)} == set()


def test_no_test_is_left_out() -> None:
    """No test is skipped or expected to fail."""
    assert {str(path) for path, text in _modules() if LEFT_OUT.search(text)} == set()


def test_no_path_of_one_machine() -> None:
    """No file names a folder that exists on one machine only."""
    found = {f"{path}: {match.group()}" for path, text in _texts() for match in MACHINE_PATH.finditer(text)}
    assert found == set()


def test_no_possessive_repeats_of_groups() -> None:
    """No pattern repeats a group possessively but one that begins with two quotes: Python 3.11.2, of Debian 12, gets others wrong."""
    strings = (
        (path, node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value)
        for path, text in _modules()
        if path.parts[0] == "storage_consumer"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
    assert [path for path, text in strings if POSSESSIVE_GROUP.search(text) and "``" not in text] == [QUOTED]


def test_top_level() -> None:
    """The top folder holds the agreed names and dotfiles, nothing else."""
    names = {path.parts[0] for path in _tracked()}
    assert {name for name in names if not name.startswith(".")} - TOP_LEVEL - PAGES == set()


def test_fixtures_are_small() -> None:
    """All fixtures together stay below the limit, so that a clone stays quick."""
    assert sum((ROOT / path).stat().st_size for path in _tracked() if path.parts[0] == "fixtures") <= FIXTURE_BYTES


def test_each_fixture_says_what_it_shows() -> None:
    """Every folder of fixtures has a README."""
    folders = {path.parts[1] for path in _tracked() if path.parts[0] == "fixtures" and len(path.parts) > 2}
    assert {name for name in folders if not (ROOT / "fixtures" / name / "README.md").exists()} == set()


def test_every_package_is_installed() -> None:
    """The wheel is told to hold the package with its type marker, and the command leads into it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"storage-consumer": "storage_consumer.cli.main:main"}
    assert (ROOT / "storage_consumer" / "py.typed").exists()


@pytest.mark.slow
@pytest.mark.lint
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--no-cache", "--check", "."],
        ["mypy"],
        ["lint-imports", "--no-cache"],
        ["codespell"],
    ],
    ids=" ".join,
)
def test_lint(command: list[str]) -> None:
    """Lint, format, types, import contracts and spelling are clean."""
    program = shutil.which(command[0], path=str(Path(sys.executable).parent)) or command[0]
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
