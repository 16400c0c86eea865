"""Reading the text of a statement: what it takes grows with the length of the text, whatever is repeated in it."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from storage_consumer.errors import TableError
from storage_consumer.model import TableDefinition, TableName, TableVersion
from storage_consumer.plan.unqualified_names import of_any_database
from storage_consumer.sql import tokens
from storage_consumer.sql.gate import refuse_foreign
from storage_consumer.sql.parse import looked_up, parsed, with_real_names
from storage_consumer.target.ddl.translate import escaped
from tests.campaigns.fuzzing.engine import Target

HEADS = ("", "ALTER TABLE `t` ", "CREATE TABLE `t` (", "CREATE VIEW `t` AS SELECT ", "RENAME TABLE `t` ", "DROP TABLE ")
SIGNS = (
    *(
        "'",
        '"',
        "`",
        "\\",
        "/*",
        "*/",
        "/*T![x]",
        "/*!",
        "--",
        "-- ",
        "#",
        "\n",
        " ",
        "(",
        ")",
        ",",
        ".",
        ";",
        "@",
        "=",
        "-",
        "1",
        "é",
        "\0",
    ),
    *(
        "`a`",
        "'b'",
        " a ",
        "_UTF8MB4'x'",
        " TABLE ",
        " TO ",
        " AS ",
        " LIKE ",
        " REFERENCES ",
        " SELECT ",
        " FROM ",
        " WITH ",
        " JOIN ",
    ),
    *(
        " USE INDEX ",
        " PARTITION ",
        " RENAME ",
        " INDEX ",
        " COMMENT ",
        " COMMENT=",
        " ENUM(",
        " DEFAULT ",
        " ADD ",
        " UNIQUE ",
        " INT ",
    ),
    *(
        " CONSTRAINT ",
        " CHECK ",
        " VALUES ",
        " IF NOT EXISTS ",
        " ON ",
        " EXCHANGE PARTITION ",
        "`a`.`b`",
        " CHARACTER SET ",
        " GLOBAL ",
    ),
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
_BETWEEN = b"\xff"


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


def units(length: int) -> list[str]:
    """All sequences of up to so many signs."""
    return ["".join(signs) for many in range(1, length + 1) for signs in itertools.product(SIGNS, repeat=many)]


def seeds() -> Sequence[bytes]:
    """Heads with single signs behind them."""
    return [_BETWEEN.join((head.encode(), unit.encode())) for head in HEADS for unit in units(1)]


def check(data: bytes) -> str:
    """Read what follows the head, repeated."""
    head, _, unit = data[:200].partition(_BETWEEN)
    times = growth(repeated(head.decode(errors="replace"), unit.decode(errors="replace")))
    assert times <= MOST, (
        f"{LONGER} times as long takes {times:.1f} times as long: {head!r}, then {unit!r} again and again"
    )
    return "quick" if not times else "grows as it should"


TARGET = Target(name="growth", seeds=seeds, check=check, pieces=[sign.encode() for sign in SIGNS])
