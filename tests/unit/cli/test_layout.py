"""Text laid out for a terminal: widths as they are shown, and nothing cut where somebody may paste it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unicodedata import east_asian_width

import pytest

from storage_consumer.cli import screen as layout
from storage_consumer.telemetry import forget_secrets, register_secret
from tests.harness.terminal import terminal

WIDTHS = (40, 80, 120, 200)
COMMAND = "storage-consumer table resume --table shop.orders --downstream-uri mysql://root@127.0.0.1:3306/"
MESSAGE = f"the target refused a row of shop.orders for a reason that takes a while. Next steps: to try it again: {COMMAND} -- to go on: {COMMAND}"
ROWS = [
    ("shop.orders", "3 versions", "ALTER TABLE orders ADD COLUMN note VARCHAR(20) COMMENT 'what the customer said'"),
    (
        "商店.订单和很长的名字",
        "12 versions",
        "ALTER TABLE `订单` ADD COLUMN `备注` VARCHAR(20) COMMENT '客户说的话都写在这里'",
    ),
    ("shop.🛒", "1 version", ""),
]


@contextmanager
def wide(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output is a terminal of this width."""
    with terminal(columns) as screen, monkeypatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(sys, "stdout", screen.stream)
        yield


def shown_width(text: str) -> int:
    """The columns that a terminal needs."""
    return sum(2 if east_asian_width(character) in "FW" else 1 for character in text)


@pytest.mark.parametrize("columns", WIDTHS)
def test_rows_fit(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal, wide characters count twice, and each name stands whole at the start of a line."""
    with wide(columns, monkeypatch):
        lines = list(layout.table(ROWS, "  "))
    assert max(map(shown_width, lines)) <= columns
    assert [row[0] for row in ROWS] == [
        name for line in lines for name in (row[0] for row in ROWS) if line.startswith(f"  {name}")
    ]
    if columns == 200:
        assert len({shown_width(line.partition("version")[0].rstrip("1234567890 ")) for line in lines[:1]}) == 1
        places = [shown_width(line[: line.index("version") - 3].rstrip()) for line in lines[:2]]
        assert places[0] < places[1]
        starts = {shown_width(line[: line.index("ALTER")]) for line in lines[:2]}
        assert len(starts) == 1


def test_pipe_gets_whole_lines() -> None:
    """Without a terminal each row is one line, whatever COLUMNS says, with everything in it."""
    lines = list(layout.table(ROWS))
    assert [line.endswith(row[2]) for line, row in zip(lines, ROWS, strict=True)] == [True] * 3
    assert layout.message(MESSAGE, "  ") == [f"  {MESSAGE}"]
    assert list(layout.facts({"label": "x " * 100, "empty": ""})) == [f"  label       {'x ' * 99}x"]
    assert layout.columns() is None


@pytest.mark.parametrize("columns", WIDTHS)
def test_commands_stay_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of a message has its line to itself, unbroken at any width; the words around it fit."""
    with wide(columns, monkeypatch):
        lines = layout.message(MESSAGE, "  ")
    assert [line.strip() for line in lines if "storage-consumer" in line] == [COMMAND] * 2
    assert max(shown_width(line) for line in lines if "storage-consumer" not in line) <= columns


def test_labels_stand_above_where_a_text_needs_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label takes no columns from a long word."""
    with wide(40, monkeypatch):
        bucket = f"s3://{'b' * 30}"
        assert list(layout.facts({"bucket": bucket})) == ["  bucket", f"      {bucket}"]
    with wide(80, monkeypatch):
        assert list(layout.facts({"bucket": "s3://b"})) == ["  bucket      s3://b"]
    with wide(200, monkeypatch):
        monkeypatch.setenv("COLUMNS", "50")
        assert layout.columns() == 50


def test_secrets_are_blanked_before_a_text_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of several words, or one where a text is cut, is shown in no part."""
    register_secret("open sesame please")
    try:
        with wide(40, monkeypatch):
            lines = layout.wrapped("the password that nobody may see is open sesame please")
            assert "sesame" not in " ".join([*lines, layout.cut("x" * 20 + " open sesame please", 30)])
    finally:
        forget_secrets()


def test_characters_of_a_terminal_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a terminal would obey is shown, and counts with the columns that it then has."""
    with wide(40, monkeypatch):
        assert layout.wrapped("a\x1b[31mb\nc") == ["a\\u001b[31mb c"]
        assert layout.cut("\x1b" * 20, 13) == "\\u001b\\u001b…"
