"""Column selectors: which columns TiCDC leaves out of its rows, one selection after another, and what the program is told of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from storage_consumer.config.settings import ColumnSelector, Protocol, Upstream
from storage_consumer.config.table_filter import vouching
from tests.campaigns.simulation.source import Change

_ALL = frozenset[str]()
_CHOICES = (_ALL, frozenset("v"), frozenset("w"), frozenset("e"), frozenset("vw"), frozenset("ve"))
_SHARE = 0.25
"""Of the histories have selectors."""


@dataclass(frozen=True, slots=True)
class Selectors:
    """The selectors of a feed; each selection is the columns that it leaves out."""

    obeyed: tuple[frozenset[str], ...] = ()
    """What TiCDC obeys, by turns; none if the history has nothing to do with selectors."""
    given: frozenset[str] = _ALL
    """What the changefeed's file says that the program has."""
    header: bool = False
    """CSV files begin with the names of the columns."""
    vouched: bool = False
    """An operator vouches that rows without names are of `given`."""

    def upstream(self, plain: Upstream) -> Upstream:
        """The settings that a process has, from those without selectors."""
        rules = tuple(f"!{name}" for name in sorted(self.given))
        chosen = (ColumnSelector(matcher=("*.*",), columns=("*", *rules)),) if rules else ()
        csv = replace(plain.csv, output_field_header=self.header)
        found = replace(plain, csv=csv, column_selectors=chosen)
        return replace(found, headerless_selectors=vouching(found).rpartition(" ")[2]) if self.vouched else found

    def reads(self, change: Change, protocol: Protocol) -> bool:
        """Whether something says which columns a row has: it has all, or names, or somebody vouches for what it lacks."""
        given = self.given & {column["ColumnName"] for column in change.columns}
        if not change.lacks or self.header or protocol == "canal-json":
            return not change.lacks or bool(given)
        return self.vouched and given == change.lacks


def some_selectors(dice: random.Random, protocol: Protocol) -> Selectors:
    """Selectors of a history: mostly none."""
    if dice.random() > _SHARE:
        return Selectors()
    obeyed = tuple(dice.sample(_CHOICES, dice.choice((1, 2, 2, 3))))
    some = [each for each in obeyed if each] or [_ALL]
    given = dice.choices((dice.choice(some), dice.choice(_CHOICES[1:]), _ALL), (5, 4, 1))[0]
    header = protocol == "csv" and dice.random() < 0.5
    # Of one selection only can it be true.
    vouched = set(some) == {given} and dice.random() < 0.8
    return Selectors(obeyed, given, header=header, vouched=vouched)
