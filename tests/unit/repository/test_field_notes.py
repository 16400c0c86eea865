"""What users lost data over, and the tests that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.field_notes import main, naming_tests, notes


def test_every_note_has_its_tests() -> None:
    """Each id of the table is named by a test, or says what is missing; each id that a test names is in the table, once."""
    table, tests = notes(), naming_tests()
    assert [note.id for note in table if not (tests.get(note.id) or note.open)] == []
    assert set(tests) <= {note.id for note in table}
    assert len(table) == len({note.id for note in table}) > 90
    assert [note.id for note in table if not note.threads] == []


def test_ids_in_docstrings(tmp_path: Path) -> None:
    """Ids are read from docstrings of tests alone, one or several in parentheses."""
    (tmp_path / "test_some.py").write_text(
        'def test_one() -> None:\n    """It does (C1, O8); so (D2)."""\n    print("(C3)")\n\n'
        'def other() -> None:\n    """It is no test (C4)."""\n\n'
        'def test_two() -> None:\n    """It does too (C1), C5 (see C6)."""\n'
    )
    one, two = (f"{tmp_path.name}/test_some.py::test_{name}" for name in ("one", "two"))
    assert naming_tests(tmp_path) == {"C1": [one, two], "O8": [one], "D2": [one]}


def test_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints threads, tests and what is open."""
    assert main() == 0
    printed = capsys.readouterr().out
    for word in (
        "pingcap/ticdc#3784",
        "shown by tests/unit/driver/test_delivery.py::test_index_ahead_of_its_file",
        "open: ",
    ):
        assert word in printed
