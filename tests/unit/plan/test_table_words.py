"""Names of tables as an operator types them, and as messages give them to be pasted."""

from __future__ import annotations

import subprocess

import pytest

from storage_consumer.errors import ConfigError
from storage_consumer.model import TableName
from storage_consumer.plan.directories import plain_command
from storage_consumer.plan.table_words import is_meant, known, meant, parsed, table_flag, table_word

NAMES = (
    ("shop", "orders"),
    ("shop", ""),
    ("a", "b.c"),
    ("a.b", "c"),
    ("d", "b`tick"),
    ("`d`", "`.`"),
    ("d", "$(touch pwned)"),
    ("d", "a;b|c & 'q' \"x\" \\ !"),
    ("d", "esc\x1b[31m\x07\x9b\u202e\nline' \\"),
    ("-d", "e"),
    ("d", "--json"),
)


@pytest.mark.parametrize(("schema", "table"), NAMES)
def test_pasted(schema: str, table: str) -> None:
    """A shell makes of a message's words the very name, runs nothing in it, and nothing of it steers a terminal."""
    name = TableName(schema=schema, table=table)
    flag = table_flag(name)
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {flag}"], capture_output=True, check=True).stdout.decode()
    assert said.split("\0") == ["--table", table_word(name), ""]
    assert is_meant(name, table_word(name))
    assert flag in plain_command("resume", name)
    assert not [sign for sign in flag if ord(sign) < 32 or sign in "\x9b\u202e"]


@pytest.mark.parametrize(("schema", "table"), NAMES)
def test_no_other_is_meant(schema: str, table: str) -> None:
    """What names a table exactly names no other one, in any letters of the alphabet's cases."""
    name = TableName(schema=schema, table=table)
    others = [TableName(schema=s, table=t) for s, t in NAMES if (s, t) != (schema, table)]
    assert not [other for other in others if is_meant(other, table_word(name).upper())]
    assert is_meant(name, table_word(name).upper())


def test_a_name_that_is_several() -> None:
    """Without backquotes a name that several tables may have is refused, with what to say for each."""
    several = [TableName(schema="a", table="b.c"), TableName(schema="a.b", table="c")]
    with pytest.raises(ConfigError, match=r"is ambiguous: give --table '`a.b`.`c`' or --table '`a`.`b.c`'"):
        meant("A.b.c", several, _itself)
    assert meant("`a`.`b.c`", several, _itself) == meant("a.b.c", several[:1], _itself) == several[:1]


def test_a_name_that_is_unknown() -> None:
    """The nearest table is named, else the first few that there are."""
    tables = [TableName(schema="shop", table="orders"), TableName(schema="shop", table="items")]
    assert known("shop.items", tables, _itself) == tables[1:]
    assert meant("shop.order", tables, _itself) == []
    with pytest.raises(ConfigError, match=r"the state knows no table shop\.order; did you mean `shop\.orders`"):
        known("shop.order", tables, _itself)
    with pytest.raises(ConfigError, match=r"known tables: shop\.orders, shop\.items"):
        known("x", tables, _itself)


def _itself(name: TableName) -> TableName:
    return name


def test_parsed() -> None:
    """Backquotes, or one dot, tell exactly which part is the database."""
    assert parsed("a.b") == parsed("`a`.`b`") == parsed("a.`b`") == TableName(schema="a", table="b")
    assert parsed("`a.b`.`c``d`") == TableName(schema="a.b", table="c`d")
    assert parsed("a") == TableName(schema="a", table="")
    assert parsed("a.b.c") is None
    assert parsed("a`b.c") is None
