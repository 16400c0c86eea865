"""Column selectors: TiCDC's table filter rules, and which columns rows lack."""

from __future__ import annotations

import pytest

from storage_consumer.config.load import load
from storage_consumer.config.settings import ColumnSelector
from storage_consumer.config.table_filter import check_selectors, unselected
from storage_consumer.errors import ConfigError

COLUMNS = ("id", "Col1", "col2", "note")


def lacking(*selectors: tuple[str, str], table: str = "shop.orders", case: bool = False) -> list[str]:
    """What a table's rows lack; a selector is its matcher and its columns, each separated by blanks."""
    schema, _, name = table.partition(".")
    made = [ColumnSelector(matcher=tuple(m.split()), columns=tuple(c.split())) for m, c in selectors]
    return unselected(made, (schema, name), COLUMNS, case=case)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("*", []),
        ("id note", ["Col1", "col2"]),
        ("* !note", ["note"]),
        ("!note *", []),
        ("co* !col2", ["id", "col2", "note"]),
        ("co?1", ["id", "col2", "note"]),
        ("COL1", ["id", "col2", "note"]),
        ("/^(id|note)$/", ["Col1", "col2"]),
        ("/ol/", ["id", "note"]),
        ("col[12]", ["id", "note"]),
        ("col[!1]", ["id", "Col1", "note"]),
        ("col[^1]", ["id", "col2", "note"]),
        ('"id"', ["Col1", "col2", "note"]),
        ("`note` !`x``y`", ["id", "Col1", "col2"]),
        ("!id", ["id", "Col1", "col2", "note"]),
        ("", ["id", "Col1", "col2", "note"]),
    ],
)
def test_columns(columns: str, expected: list[str]) -> None:
    """The last rule that fits a column decides, without case; a column that none fits is not in the rows."""
    assert lacking(("*.*", columns)) == expected


@pytest.mark.parametrize(
    ("matcher", "fits"),
    [
        ("shop.*", True),
        ("shop.orders", True),
        ("SHOP.Orders", True),
        ("sh*.o?ders", True),
        ("shop.items", False),
        ("*.* !shop.orders", False),
        ("!shop.orders *.*", True),
        ("other.*", False),
        ('"shop".`orders`', True),
        ("/^shop$/./^ord/", True),
        ("", False),
    ],
)
def test_matcher(matcher: str, fits: object) -> None:
    """A matcher is a list of rules for schema and table, the last of which that fits decides."""
    assert bool(lacking((matcher, "id"))) is fits


def test_case_of_names() -> None:
    """With case-sensitive, a matcher tells upper from lower case; column patterns never do."""
    assert lacking(("Shop.orders", "id"), case=True) == []
    assert lacking(("shop.orders", "ID"), case=True) == ["Col1", "col2", "note"]


def test_first_selector_counts() -> None:
    """The first selector whose matcher fits is the table's."""
    assert lacking(("shop.items", "id"), ("shop.*", "note"), ("*.*", "*")) == ["id", "Col1", "col2"]
    assert lacking() == []


@pytest.mark.parametrize(
    "rule",
    [
        "shop",
        "shop.",
        ".orders",
        "shop.orders.x",
        'shop."orders',
        "shop./x",
        "shop./(/",
        "shop.[",
        "a b.c",
        "@rules.txt",
        "!",
        r"sh\op.orders",
    ],
)
def test_bad_rule(rule: str) -> None:
    """A rule that cannot be read is named before anything starts."""
    with pytest.raises(ConfigError, match="column-selectors"):
        check_selectors([ColumnSelector(matcher=(rule,), columns=("*",))])


def test_comments_and_blanks() -> None:
    """Empty rules and comments are passed over, blanks around a rule do not count."""
    rules = ColumnSelector(matcher=("", "# all", "\t*.* "), columns=(" id ",))
    assert unselected([rules], ("s", "t"), ("id", "x"), case=False) == ["x"]


def test_checked_with_the_settings() -> None:
    """A changefeed with a rule that cannot be read is refused when the settings are loaded."""
    selectors = [{"matcher": ["shop"], "columns": ["*"]}]
    options = {
        "upstream_uri": "file:///bucket?protocol=canal-json&enable-tidb-extension=true",
        "downstream_uri": "mysql://root@127.0.0.1:3306/",
        "config": {"sink": {"column-selectors": selectors}},
    }
    with pytest.raises(ConfigError, match="the rule 'shop' cannot be read: a dot is missing"):
        load(options, {})
    selectors[0]["matcher"] = ["shop.*"]
    found = load(options, {}).config.upstream.column_selectors
    assert found == (ColumnSelector(matcher=("shop.*",), columns=("*",)),)
