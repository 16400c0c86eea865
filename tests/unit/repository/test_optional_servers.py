"""A machine without a TiDB server runs all other tests: a test asks for it through `servers.KINDS`, or where one was found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
FIXTURES = {"kind", "rig", "server"}
"""The parameters that choose a server."""


def asking(source: str) -> list[str]:
    """Return the tests that ask for TiDB wherever they run, by its fixture or its name in a list of servers, and such lists of the module."""
    # What stands below an `if` of the module asks first whether there is one.
    body = ast.parse(source).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    lists = [node.targets[0] for node in body if isinstance(node, ast.Assign) and _is_list_with_tidb(node.value)]
    named = [node.name for node in functions if _by_fixture(node) or any(map(_by_name, node.decorator_list))]
    return named + [ast.unparse(name) for name in lists if _chooses_servers(name, functions)]


def _is_list_with_tidb(value: ast.expr) -> bool:
    if not isinstance(value, ast.List | ast.Tuple | ast.ListComp):
        return False
    inside = value.elt if isinstance(value, ast.ListComp) else value
    return any(isinstance(node, ast.Constant) and node.value == "tidb" for node in ast.walk(inside))


def _chooses_servers(name: ast.expr, functions: list[ast.FunctionDef]) -> bool:
    """Return whether `name` gives a fixture its parameters, or a test the server that it runs on."""
    decorators = [decorator for function in functions for decorator in function.decorator_list]
    used = [node for decorator in decorators if _is_about_servers(decorator) for node in ast.walk(decorator)]
    return any(isinstance(node, ast.Name) and node.id == ast.unparse(name) for node in used)


def _is_about_servers(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=ast.Attribute(attr="fixture")):
            return True
        case ast.Call(args=[ast.Constant(value=str(chosen)), *_]):
            return chosen in FIXTURES
    return False


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
        ('PAIRS = [("tidb", kind) for kind in KINDS]\n@pytest.fixture(params=PAIRS)\ndef rig(request): ...', ["PAIRS"]),
        ('WORDS = ["tidb"]\ndef helper(): return WORDS', []),
        ('@pytest.mark.parametrize("kind", KINDS)\ndef test_a(kind): ...', []),
        ('@pytest.mark.parametrize("word", ["tidb"])\ndef test_a(word): ...', []),
        ("if tidb_program():\n    def test_a(tidb): ...", []),
        ("def helper(tidb): ...", []),
    ],
)
def test_asking(source: str, found: list[str]) -> None:
    """A fixture and a list of names are found; what `KINDS` gives, and what asks before, is not."""
    assert asking(source) == found
