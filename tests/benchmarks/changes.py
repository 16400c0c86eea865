"""What happens at the source: a table's rows, and for each profile its transactions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.benchmarks.rows import STATE_BITS, Change

_SKEW = 4
"""Updates hit the place (age share)**4 from the youngest row."""
_REPEATS = 0.02
"""Of the rows of a table without a key: equal to the row before."""

Transaction = tuple[Change, ...]
"""Changes with one commit ts, in the order in which TiCDC writes them: deletes first."""


@dataclass(slots=True)
class SourceTable:
    """The source's rows of one table."""

    name: str
    version: int
    born: list[int] = field(default_factory=list)
    """Row numbers by age, deleted ones included."""
    states: dict[int, int] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)
    """Codes that no row has any more."""
    codes: int = 0
    """Codes that a row has had: all from 1 to this."""

    def insert(self, state: int) -> Change:
        """A new row."""
        row = len(self.born) + 1
        self.born.append(row)
        self.states[row] = state
        return row, None, state

    def update(self, row: int, state: int) -> Change:
        """Another state of a row."""
        before, self.states[row] = self.states[row], state
        return row, before, state

    def delete(self, row: int) -> Change:
        """A row less."""
        return row, self.states.pop(row), None

    def pick(self, chance: random.Random, skew: int) -> int:
        """A living row; a higher `skew` prefers the young ones."""
        while True:
            age = chance.random() ** skew
            row = self.born[-1 - int(age * len(self.born))]
            if row in self.states:
                return row


def _insert(table: SourceTable, chance: random.Random) -> Iterator[Transaction]:
    """Inserts only."""
    while True:
        yield (table.insert(chance.getrandbits(STATE_BITS)),)


def _mixed(table: SourceTable, chance: random.Random) -> Iterator[Transaction]:
    """60 % inserts, 30 % updates, mostly of young rows, 10 % deletes."""
    while True:
        kind = chance.random()
        if kind < 0.6 or not table.states:
            yield (table.insert(chance.getrandbits(STATE_BITS)),)
        elif kind < 0.9:
            yield (table.update(table.pick(chance, _SKEW), chance.getrandbits(STATE_BITS)),)
        else:
            yield (table.delete(table.pick(chance, 1)),)


def _keyless(table: SourceTable, chance: random.Random) -> Iterator[Transaction]:
    """80 % inserts, 10 % updates, 10 % deletes; some rows are equal."""
    while True:
        kind = chance.random()
        if kind < 0.8 or not table.states:
            yield (table.insert(_repeated(table, chance) or chance.getrandbits(STATE_BITS)),)
        elif kind < 0.9:
            yield (table.update(table.pick(chance, _SKEW), chance.getrandbits(STATE_BITS)),)
        else:
            yield (table.delete(table.pick(chance, 1)),)


def _repeated(table: SourceTable, chance: random.Random) -> int | None:
    """Now and then the state of the row before, where that is alive and the next one shares its id."""
    last = len(table.born)
    return table.states.get(last) if last % 2 and chance.random() < _REPEATS else None


def _unique(table: SourceTable, chance: random.Random) -> Iterator[Transaction]:
    """As mixed, but half of the updates move codes: two rows swap theirs, or a row takes a new one and another its old one.

    TiCDC splits an update that changes a unique key into a delete and an insert; an insert may take the code of a row that is gone.
    """
    while True:
        kind = chance.random()
        if kind < 0.6 or len(table.states) < 2:
            yield (table.insert(_state(_free_code(table, chance), chance)),)
        elif kind < 0.75:
            row = table.pick(chance, _SKEW)
            yield (table.update(row, _state(_code(table.states[row]), chance)),)
        elif kind < 0.9:
            yield from _moved(table, chance)
        else:
            change = table.delete(table.pick(chance, 1))
            table.freed.append(_code(change[1] or 0))
            yield (change,)


def _moved(table: SourceTable, chance: random.Random) -> Iterator[Transaction]:
    first, second = table.pick(chance, _SKEW), table.pick(chance, 1)
    if first == second:
        return
    old, other = _code(table.states[first]), _code(table.states[second])
    if chance.random() < 0.5:
        halves = [_split(table.update(row, _state(code, chance))) for row, code in ((first, other), (second, old))]
        yield (*(gone for gone, _ in halves), *(come for _, come in halves))
        return
    yield _split(table.update(first, _state(_free_code(table, chance), chance)))
    yield _split(table.update(second, _state(old, chance)))
    table.freed.append(other)


def _split(change: Change) -> tuple[Change, Change]:
    row, before, after = change
    return (row, before, None), (row, None, after)


def _state(code: int, chance: random.Random) -> int:
    return code << STATE_BITS | chance.getrandbits(STATE_BITS)


def _code(state: int) -> int:
    return state >> STATE_BITS


def _free_code(table: SourceTable, chance: random.Random) -> int:
    """One that no row has: every other time of a row that had one, else of a number not yet used."""
    if table.freed and chance.random() < 0.5:
        return table.freed.pop()
    table.codes += 1
    return table.codes


PROFILES: dict[str, Callable[[SourceTable, random.Random], Iterator[Transaction]]] = {
    "mixed": _mixed,
    "insert": _insert,
    "unique": _unique,
    "keyless": _keyless,
    "wide": _mixed,
}
"""A table's transactions, without end, by profile."""
