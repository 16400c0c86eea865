"""Which virtual columns are noted as the target's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.model import TableColumn
from storage_consumer.target.ddl.translate import action_for
from tests.unit.building import definition

COLUMNS = (
    TableColumn(name="I", type="BIGINT"),
    TableColumn(name="s", type="VARCHAR"),
    TableColumn(name="f", type="DOUBLE"),
    TableColumn(name="d", type="DATE"),
    TableColumn(name="j", type="JSON"),
)


@pytest.mark.parametrize(
    ("expression", "is_noted"),
    [
        ("`i`+1", False),
        ("(`i`+1)*2-`I`", False),
        ("CONCAT(_UTF8MB4'a/', `s`, `i`)", False),
        ("YEAR(`d`)", False),
        ("`s`", False),
        ("1", False),
        ("`i`/3", True),
        ("`i` DIV 3", False),
        ("`f`+1", True),
        ("`f`", True),
        ("CONCAT(`f`)", True),
        ("`s`+1", True),
        ("UPPER(`s`)", True),
        ("`s`=_UTF8MB4'a'", True),
        ("CONCAT(UPPER(`s`))", True),
        ("YEAR(`s`)", True),
        ("JSON_EXTRACT(`j`, _UTF8MB4'$.a')", True),
        ("CONCAT(`unknown`)", True),
        ("i+1", False),
        ("YEAR(d)", False),
        ("i/3", True),
        ("UPPER(s)", True),
        ("CONCAT(f)", True),
        ("s + 1", True),
        ("CONCAT(unknown)", True),
        ("LENGTH(`s`)", True),
        ("CRC32(`i`)", False),
    ],
)
def test_noted(expression: str, *, is_noted: bool) -> None:
    """Only what is proven for the columns' types is passed over; a stored column has its values in the files."""
    note = ("virtual column of g",) if is_noted else ()
    for kind in ("", " VIRTUAL"):
        query = f"CREATE TABLE `t` (`i` BIGINT,`g` VARCHAR(99) GENERATED ALWAYS AS ({expression}){kind},`h` INT)"
        of = replace(definition("s/t", 1, query), columns=COLUMNS)
        for server in ("mysql", "mariadb"):
            found = action_for(of, server, "utf8mb4_bin").notes
            assert tuple(each for each in found if each.startswith("virtual")) == note
        assert action_for(of, "tidb", "utf8mb4_bin").notes == ()
        stored = replace(of, query=query.replace(f"){kind},`h`", ") STORED,`h`"))
        assert not any(each.startswith("virtual") for each in action_for(stored, "mysql", "utf8mb4_bin").notes)
