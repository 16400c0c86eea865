"""Which partitions a table has after a statement, and which of them the statement needs, as far as its text shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage_consumer.model import folded_name
from storage_consumer.sql.column_parts import NAMES
from storage_consumer.sql.tokens import Token, find_words, has_words

Partitions = frozenset[str] | None
"""Folded names, none for a table that is not partitioned; None if nobody knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """What an ALTER TABLE says about partitions by name."""

    needs: tuple[str, ...] = ()
    """Those that it drops, empties, exchanges or reorganizes."""
    frees: tuple[str, ...] = ()
    """Those of them that are gone afterwards."""
    makes: tuple[str, ...] = ()


def partition_change(found: Sequence[Token]) -> PartitionChange | None:
    """Return what an ALTER TABLE says about partitions by name; None if it names none, or may say more than this tells."""
    if has_words(found, "PARTITION", "BY", depth=0) or has_words(found, "EXISTS", depth=0):
        return None
    for verb in ("DROP", "TRUNCATE", "EXCHANGE", "REORGANIZE"):
        if (at := find_words(found, verb, "PARTITION", depth=0)) > 0:
            named = _listed(found, at + 2)
            if not named or has_words(found[at + 2 :], "ALL", depth=0):
                return None
            made = _made(found, at + 2)
            return PartitionChange(needs=named, frees=named if verb in ("DROP", "REORGANIZE") else (), makes=made)
    at = find_words(found, "ADD", "PARTITION", depth=0)
    made = _made(found, at + 2) if at > 0 else ()
    return PartitionChange(makes=made) if made else None


def partitions_after(found: Sequence[Token], before: Partitions) -> Partitions:
    """Return the partitions of a table after a CREATE TABLE or ALTER TABLE."""
    if (by := find_words(found, "PARTITION", "BY", depth=0)) > 0:
        return _partitioned(found, by)
    if has_words(found, "REMOVE", "PARTITIONING", depth=0):
        return frozenset()
    change = partition_change(found)
    if not any(token.upper in ("PARTITION", "PARTITIONS") and not token.depth for token in found):
        return before
    return None if change is None or before is None else _changed(before, change)


def _partitioned(found: Sequence[Token], by: int) -> Partitions:
    """Return the partitions that a table is cut into, by the words from an index on."""
    if has_words(found, "INTERVAL"):
        return None
    if made := _made(found, by + 2):
        return frozenset(map(folded_name, made))
    counted = find_words(found, "PARTITIONS", start=by, depth=0)
    number = found[counted + 1].text if 0 < counted < len(found) - 1 else "1"
    return frozenset(f"p{each}" for each in range(int(number))) if number.isdecimal() else None


def _changed(before: frozenset[str], change: PartitionChange) -> Partitions:
    return before.difference(map(folded_name, change.frees)).union(map(folded_name, change.makes))


def _listed(found: Sequence[Token], at: int) -> tuple[str, ...]:
    """Return the names from an index on that commas separate."""
    names = []
    while at < len(found) and found[at].kind in NAMES:
        names.append(found[at].name)
        if found[at + 1 : at + 2] == () or found[at + 1].text != ",":
            break
        at += 2
    return tuple(names)


def _made(found: Sequence[Token], start: int) -> tuple[str, ...]:
    """Return the names of the partitions that are defined in parentheses behind an index."""
    return tuple(
        after.name
        for token, after in zip(found[start:], found[start + 1 :], strict=False)
        if token.upper == "PARTITION" and token.depth == 1 and after.kind in NAMES
    )
