"""What the text of a view shows of its columns."""

from __future__ import annotations

import pytest

from storage_consumer.sql.parse import reads_all_columns


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("SELECT * FROM `t`", True),
        ("SELECT DISTINCT `t`.* FROM `t`", True),
        ("SELECT HIGH_PRIORITY SQL_NO_CACHE * FROM `t`", True),
        ("SELECT `a`, `d`.`t`.*, 1 FROM `d`.`t`", True),
        ("SELECT `a` FROM `t` UNION SELECT * FROM `u`", True),
        ("TABLE `t`", True),
        ("SELECT `a` * `b` FROM `t`", False),
        ("SELECT COUNT(*) FROM `t`", False),
        ("SELECT `a` FROM `t` WHERE `b` * 2 > 1", False),
    ],
)
def test_all_columns(body: str, expected: bool) -> None:  # noqa: FBT001 - of a table
    """An asterisk stands for columns only where a column may stand alone."""
    assert reads_all_columns(f"CREATE ALGORITHM = MERGE SQL SECURITY INVOKER VIEW `v` AS {body}") is expected
    assert reads_all_columns(f"CREATE OR REPLACE VIEW `d`.`v` (`x`) AS {body}") is expected
