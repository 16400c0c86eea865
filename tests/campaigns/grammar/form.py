"""One statement of the grammar, with what has to be there before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

TABLE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT,`s` VARCHAR(20),`w` INT NOT NULL DEFAULT 0)"
"""What most statements change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Statements in the text of TiDB's own parser, which is what TiCDC stores."""

    group: str
    """Part of the grammar."""
    statements: Sequence[str]
    """What the form is about; several are a chain."""
    before: Sequence[str] = ()
    """Statements that make what it needs."""
    by_chance: bool = False
    """The rows that are there get values that no two servers agree on."""

    @property
    def name(self) -> str:
        """What tells it from all others."""
        scene = [text for text in self.before if text != TABLE]
        return " ; ".join((*scene, *self.statements))


def altered(group: str, actions: Iterable[str], table: str = TABLE) -> Iterator[Form]:
    """ALTER TABLE with each action alone."""
    for action in actions:
        yield Form(group=group, before=[table], statements=[f"ALTER TABLE `t` {action}"])


def alone(group: str, statements: Iterable[str], before: Sequence[str] = (TABLE,)) -> Iterator[Form]:
    """Each statement by itself."""
    for statement in statements:
        yield Form(group=group, before=before, statements=[statement])


def chains(group: str, found: Iterable[Sequence[str]]) -> Iterator[Form]:
    """Statements that follow one another; the first makes the table."""
    for statements in found:
        yield Form(group=group, statements=statements)
