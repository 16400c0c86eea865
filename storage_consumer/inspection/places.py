"""Where a changefeed's folder may be instead, if the named one has no ``metadata``: some levels up, or one down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from storage_consumer.config.settings import Upstream
from storage_consumer.errors import StorageConsumerError
from storage_consumer.poll.metadata import parse_metadata
from storage_consumer.storage.base import METADATA_BYTES, Storage

_UP = 3
"""Levels above: a database, a table in it, and one of its versions."""
_DOWN = 20
"""Upper limit of the folders below that are checked, each found by a listing of its own."""
_SHOWN = 1_000
"""Objects to look at in one listing."""


def likely_places(upstream: Upstream, opened: Callable[[Upstream], Storage]) -> tuple[str, ...]:
    """Return the folders near `upstream` that have a ``metadata`` of TiCDC's, as URIs. Unreadable ones count as having none."""
    found = [*_above(upstream), *_below(upstream, opened)]
    return tuple(near.identity for near in found if tells_checkpoint(opened(near)))


def missing_metadata(upstream: Upstream, places: tuple[str, ...]) -> str:
    """Return what to tell an operator about a bucket without ``metadata``."""
    said = f"{upstream.identity} has no metadata file, which TiCDC writes into the folder of its sink URI with its first checkpoint"
    if places:
        return f"{said}. The changefeed's folder is likely {' or '.join(places)}: give that as --upstream-uri"
    return (
        f"{said}: nothing is read or created before there is one. Is the upstream URI the changefeed's sink URI, "
        "and does it run?"
    )


def tells_checkpoint(storage: Storage) -> bool:
    """Return whether there is a ``metadata`` with a checkpoint-ts; False if the storage fails to answer."""
    try:
        return parse_metadata(storage.read("metadata", METADATA_BYTES)) is not None
    except (StorageConsumerError, FileNotFoundError):
        return False


def _above(upstream: Upstream) -> Iterator[Upstream]:
    folder = upstream.root
    for _ in range(_UP):
        folder = folder.rpartition("/")[0]
        if not folder:
            return
        yield replace(upstream, root=folder)


def _below(upstream: Upstream, opened: Callable[[Upstream], Storage]) -> Iterator[Upstream]:
    storage, known = opened(upstream), set[str]()
    try:
        for _ in range(_DOWN):
            # Each folder found is left out of the next listing, so a large first folder does not hide the others.
            shown = islice(storage.listing(frozenset(known), {}), _SHOWN)
            folders = (stored.path.partition("/")[0] for stored in shown if "/" in stored.path)
            folder = next((name for name in folders if name not in known), None)
            if folder is None:
                return
            known.add(folder)
            yield replace(upstream, root=f"{upstream.root.rstrip('/')}/{folder}")
    except StorageConsumerError:
        return
