"""Reading the text of a statement: what it takes grows with the length of the text, whatever is repeated in it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.errors import TableError
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.plan.unqualified_names import of_any_database
from storage_consumer.sql import tokens
from storage_consumer.sql.gate import refuse_foreign
from storage_consumer.sql.parse import looked_up, parsed, with_real_names
from storage_consumer.target.ddl.translate import escaped
from tests.harness.corpora import THOROUGH

pytestmark = [pytest.mark.alone, pytest.mark.slow]
HEADS = ("", "ALTER TABLE `t` ", "CREATE TABLE `t` (", "CREATE VIEW `t` AS SELECT ", "RENAME TABLE `t` ", "DROP TABLE ")
WORDS = [
    "a",
    "TABLE",
    "TO",
    "AS",
    "LIKE",
    "REFERENCES",
    "SELECT",
    "FROM",
    "WITH",
    "JOIN",
    "PARTITION",
    "RENAME",
    "INDEX",
    "COMMENT",
    "COMMENT=",
    "ENUM(",
    "DEFAULT",
    "ADD",
    "UNIQUE",
    "INT",
    "CONSTRAINT",
    "CHECK",
    "VALUES",
    "ON",
    "GLOBAL",
]
PHRASES = ("USE INDEX", "IF NOT EXISTS", "EXCHANGE PARTITION", "CHARACTER SET")
SIGNS = (
    *"'\"`\\#\n (),.;@=-1é\0",
    *("/*", "*/", "/*T![x]", "/*!", "--", "-- ", "`a`", "'b'", "_UTF8MB4'x'", "`a`.`b`"),
    *(f" {word} " for word in (*WORDS, *PHRASES)),
)
"""What texts are made of."""
SHORT = 2_000
"""Characters of the shorter text; the longer one is still short enough to be kept as tokens, so that both are cut up once."""
LONGER = 4
"""How many times as long the longer one is."""
MOST = 9.0
"""How many times as long it may take: work that grows with the square takes 16 times as long."""
UNSEEN = 0.02
"""Seconds up to which the longer one is quick whatever the shorter one took."""
TRIES = 5
"""The best of so many counts."""


def read(text: str) -> None:
    """Everything that reads a statement before the gate has let it pass, and the gate."""
    name = TableName(schema="shop", table="t")
    definition = TableDefinition(
        name=name, version=TableVersion(1), query=text, ddl_type=5, columns=(), path="p", checksum=0
    )
    tokens._kept.cache_clear()
    for asks in (parsed, of_any_database, looked_up):
        asks(replace(definition))
    with_real_names(definition, {TableName(schema="shop", table="a"): TableName(schema="shop", table="A")})
    try:
        refuse_foreign(definition, escaped(text), "mysql")
    except TableError:
        return


def growth(make: Callable[[int], str], reads: Callable[[str], None] = read, short: int = SHORT) -> float:
    """How many times as long a text takes that is `LONGER` times as long as `short`; 0 where it is quick. The best of some tries counts."""
    best = float("inf")
    for _ in range(TRIES):
        long = _seconds(reads, make(short * LONGER))
        if long < UNSEEN:
            return 0.0
        best = min(best, long / max(_seconds(reads, make(short)), 1e-9))
        if best <= MOST:
            break
    return best


def _seconds(reads: Callable[[str], None], text: str) -> float:
    """Of this process alone, so that others on the machine do not count.

    Nor does what the process holds already: a longer text makes Python search all of that for garbage, a shorter one does not.
    """
    gc.disable()
    try:
        began = time.process_time()
        reads(text)
        return time.process_time() - began
    finally:
        gc.enable()


def repeated(head: str, unit: str) -> Callable[[int], str]:
    """A text of so many characters."""
    return lambda length: head + unit * (length // max(len(unit), 1))


@settings(max_examples=5_000 if THOROUGH else 100)
@given(
    st.sampled_from(HEADS), st.lists(st.sampled_from(SIGNS), min_size=1, max_size=4).map("".join) | st.text(max_size=8)
)
def test_repeated(head: str, unit: str) -> None:
    """A text that is four times as long takes about four times as long, whatever is repeated in it."""
    assert growth(repeated(head, unit)) <= MOST


@pytest.mark.parametrize("unit", ["'\\", "/* a ", '"', "`", "(", " WITH `a` AS (", ",`a`(", " TO "])
def test_long_texts(unit: str) -> None:
    """A text of 100 KB takes about four times as long as one of 25 KB."""
    assert growth(repeated("ALTER TABLE `t` ", unit), short=25_000) <= MOST


def test_growth_is_seen() -> None:
    """The measure itself: work that grows with the square is found."""

    def reads(text: str) -> None:
        for at in range(len(text)):
            text.count("\1a", at)

    assert growth(lambda length: "a" * length * 2, reads) > MOST
