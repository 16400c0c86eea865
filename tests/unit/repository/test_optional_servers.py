"""A machine without a TiDB server runs all other tests: a test asks for it through `servers.KINDS`, or where one was found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
FIXTURES = {"kind", "rig", "server"}
"""The parameters that choose a server."""


def asking(source: str) -> list[str]:
    """Return the tests that ask for TiDB wherever they run: by its fixture, or by its name in a list of servers."""
    # What stands below an `if` of the module asks first whether there is one.
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if _by_fixture(node) or any(map(_by_name, node.decorator_list))]


def _by_fixture(function: ast.FunctionDef) -> bool:
    return function.name.startswith("test_") and any(each.arg == "tidb" for each in function.args.args)


def _by_name(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(args=[ast.Constant(value=str(name)), ast.List(elts=values) | ast.Tuple(elts=values), *_]):
            named = any(isinstance(value, ast.Constant) and value.value == "tidb" for value in values)
            return named and name in FIXTURES
    return False


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_test_needs_tidb(path: Path) -> None:
    """No module of tests has one that fails where there is no TiDB server."""
    assert asking(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a(tidb): ...", ["test_a"]),
        ('@pytest.mark.parametrize("kind", ["mariadb", "tidb"])\ndef test_a(kind): ...', ["test_a"]),
        ('@pytest.mark.parametrize("server", ("tidb",), indirect=True)\ndef test_a(server): ...', ["test_a"]),
        ('@pytest.mark.parametrize("kind", KINDS)\ndef test_a(kind): ...', []),
        ('@pytest.mark.parametrize("word", ["tidb"])\ndef test_a(word): ...', []),
        ("if tidb_program():\n    def test_a(tidb): ...", []),
        ("def helper(tidb): ...", []),
    ],
)
def test_asking(source: str, found: list[str]) -> None:
    """A fixture and a list of names are found; what `KINDS` gives, and what asks before, is not."""
    assert asking(source) == found
