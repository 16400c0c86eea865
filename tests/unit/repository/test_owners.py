"""One owner for each fact: no class is spread over modules, and one module alone names the tables of the state."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_consumer.target.state_tables import StateTables

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "storage_consumer"
INHERITED = {
    "Bucket",
    "OrderedBucket",
    "ReadInParts",
    "StoreErrors",
    "Decoder",
    "Tasks",
    "MicroBatches",
    "FlagsOfAll",
    "FlagsWithJson",
    "Stored",
    "TargetStructure",
}
"""What the stores of `storage/`, the decoders, the records of commands, and the parts of the state have in common, tasks of a batch and of a stream; and the target, as a room reads it."""
WITH_STATE_SQL = {f"{PACKAGE}/target/state_tables.py", f"{PACKAGE}/checkpoint/transactions.py"}
"""The definitions, and what creates and migrates them."""
SQL = re.compile(
    r"\s*(SELECT|INSERT|REPLACE|UPDATE|DELETE|FROM|INTO|(LEFT )?JOIN|WHERE|SET|ALTER TABLE)\b|.*[=<>] ?(%s|')",
    re.DOTALL,
)
"""How a statement begins, or a part of one; or a comparison with a value."""
STATE = StateTables("s").metadata.sorted_tables
NAMES = {table.name for table in STATE} | {column.name for table in STATE for column in table.c}
NOT_OURS = {
    "schema_name",
    "table_name",
    "follows",
    "statement",
    "query",
    "state",
    "version",
    "seconds",
    "error",
    "path",
    "columns",
    "id",
}
"""Names that others have too: information_schema, the servers, and messages in which a word is in capitals."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Each module of the package, by its path."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def classes() -> dict[str, ast.ClassDef]:
    """Each class of the package, by the full name."""
    return {
        f"{path.removesuffix('.py').replace('/', '.')}.{node.name}": node
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def inherited(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each class of a module with the full name of each base that it imports from its own room."""
    room = path.rpartition("/")[0].replace("/", ".")
    imported = {
        name.asname or name.name: f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[0] == room
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = [base.id for base in node.bases if isinstance(base, ast.Name)]
            yield from ((node.name, imported[name]) for name in names if name in imported)


def is_to_be_inherited(base: ast.ClassDef) -> bool:
    """Whether a class is a Protocol or a record, or one of `INHERITED`."""
    protocol = any(isinstance(each, ast.Name) and each.id == "Protocol" for each in base.bases)
    return protocol or "dataclass" in map(_called, base.decorator_list) or base.name in INHERITED


def _called(decorator: ast.expr) -> str:
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    return made.id if isinstance(made, ast.Name) else ""


def test_no_class_is_spread_over_modules() -> None:
    """A class has its methods in one module: what it shares with another one is an object that both have."""
    known = classes()
    found = [
        f"{path}: {name}({base})"
        for path, tree in modules()
        for name, base in inherited(path, tree)
        if not is_to_be_inherited(known[base])
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from storage_consumer.a.b import B\nclass C(B): pass", [("C", "storage_consumer.a.b.B")]),
        ("from storage_consumer.a.b import B as D\nclass C(D): pass", [("C", "storage_consumer.a.b.B")]),
        ("from storage_consumer.b import B\nclass C(B): pass", []),
        ("class B: pass\nclass C(B): pass", []),
    ],
)
def test_what_counts_as_inherited(source: str, found: list[tuple[str, str]]) -> None:
    """The ruler itself: only a base from another module of the same room counts, whatever it is called here."""
    assert list(inherited("storage_consumer/a/c.py", ast.parse(source))) == found


def texts(tree: ast.Module) -> Iterator[str]:
    """Each text of a module, docstrings too; what is put into one is left out."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield " ".join(str(each.value) for each in node.values if isinstance(each, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def state_names(text: str) -> set[str]:
    """The names of state tables and their columns in a text, if it is SQL."""
    return set(re.findall(r"\w+", text)) & (NAMES - NOT_OURS) if SQL.match(text) else set()


def test_state_tables_are_named_in_one_place() -> None:
    """No SQL in a text names a state table or a column of one, but where they are defined: all else builds statements from that."""
    found = {
        f"{path}: {text!r}": names
        for path, tree in modules()
        if path not in WITH_STATE_SQL
        for text in texts(tree)
        if (names := state_names(text))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT epoch, window_id, attempt, finished FROM  WHERE slot = ",
        "UPDATE  SET finished = 1 WHERE slot = ",
        "INSERT INTO storage_consumer.table_progress VALUES (",
        "SELECT upstream FROM  FOR UPDATE",
        "DELETE FROM  WHERE table_key = %s",
        "table_key = %s AND version <= %s ORDER BY version DESC, digest LIMIT 1",
    ],
)
def test_what_counts_as_state_sql(text: str) -> None:
    """The ruler itself: a statement is found by the columns, also where the table's name is put in."""
    assert state_names(text)


def test_tasks_load_no_sqlalchemy() -> None:
    """What an executor imports to write rows does without SQLAlchemy, which takes a third of a second to load."""
    code = "import sys, storage_consumer.target.bucket_writer, storage_consumer.rows.halves; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
