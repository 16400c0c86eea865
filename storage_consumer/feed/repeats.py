"""Changes that TiCDC delivered more than once, each once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import chain

from storage_consumer.feed.records import Change
from storage_consumer.kernels.arrays import DELETE, PARTIAL_DELETE, UPDATE
from storage_consumer.order.keys import delivered_once, order_of

_DELETES = frozenset((DELETE, PARTIAL_DELETE))
Ranked = tuple[int, Change]
"""Rank of the file among those of its table, and the change."""


def once(changes: Sequence[Ranked]) -> list[Change]:
    """Return the changes of one table at one commit-ts, deletes before upserts, then by file and row; repeated ones once."""
    ordered = sorted(changes, key=_place)
    if len({rank for rank, _ in ordered}) == 1:
        return [change for _, change in ordered]
    keyed = [each for each in ordered if _key(each[1]) is not None]
    others = [each for each in ordered if _key(each[1]) is None]
    return [change for _, change in sorted([*_by_key(keyed), *_by_count(others)], key=_place)]


def _place(each: Ranked) -> tuple[bool, int, int]:
    rank, change = each
    return change.operation not in _DELETES, rank, change.row


def _key(change: Change) -> Hashable:
    """Return the primary key of the row that is changed; None if the table has none."""
    structure = change.structure
    if not structure.key:
        return None
    return tuple(change.values[place] for place in structure.key)


def _by_key(ordered: Sequence[Ranked]) -> list[Ranked]:
    """Return each key's changes once.

    A transaction leaves one row with a key, and may have removed another one before. After a restart TiCDC may write an update as a delete
    and an insert: where any delivery has the update, the others of that key are repeats of it. (An update to another key is in two parts.)
    """
    found: dict[Hashable, dict[int, Ranked]] = defaultdict(dict)
    for each in ordered:
        found[_key(each[1])].setdefault(max(each[1].operation, DELETE), each)
    kept = ({UPDATE: kinds[UPDATE]} if UPDATE in kinds else kinds for kinds in found.values())
    return list(chain.from_iterable(kinds.values() for kinds in kept))


def _by_count(ordered: Sequence[Ranked]) -> list[Ranked]:
    """Return rows without a key as often as one delivery of the transaction has them. (An update whose old row is known is in two parts.)"""
    by_content: dict[Hashable, list[Ranked]] = defaultdict(list)
    orders: list[tuple[int, Hashable]] = []
    for rank, change in ordered:
        names = [column.name for column in change.structure.columns]
        content = change.operation, frozenset(zip(names, change.values, strict=True))
        by_content[content].append((rank, change))
        orders.append((order_of(rank, change.row, upsert=change.operation not in _DELETES), content))
    return [by_content[content].pop(0) for _, content in delivered_once(orders)]
