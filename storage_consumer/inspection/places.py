"""Where a changefeed's folder may be instead, when the one that was named has no ``metadata``: some levels up, or one down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from storage_consumer.config.settings import Upstream
from storage_consumer.errors import StorageConsumerError
from storage_consumer.poll.metadata import parse_metadata
from storage_consumer.storage.base import Storage
from storage_consumer.storage.small_file import METADATA_BYTES

_UP = 3
"""Levels: of a database, of a table in it, and of one of its versions."""
_DOWN = 20
"""Folders below that are looked into, each found by a listing of its own."""
_SHOWN = 1_000
"""Objects that are looked at in one listing."""


def likely_places(upstream: Upstream, opened: Callable[[Upstream], Storage]) -> tuple[str, ...]:
    """The folders near `upstream` that have a ``metadata`` of TiCDC's, as URIs. What does not answer or may not be read has none."""
    found = [*_above(upstream), *_below(upstream, opened)]
    return tuple(near.identity for near in found if tells_checkpoint(opened(near)))


def missing_metadata(upstream: Upstream, places: tuple[str, ...]) -> str:
    """What an operator should hear of a bucket without ``metadata``."""
    said = f"{upstream.identity} has no metadata file, which TiCDC writes into the folder of its sink URI with its first checkpoint"
    if places:
        return f"{said}. The changefeed's folder is likely {' or '.join(places)}: give that as --upstream-uri"
    return f"{said}: nothing is read or made before there is one. Is the upstream URI the changefeed's sink URI, and does it run?"


def tells_checkpoint(storage: Storage) -> bool:
    """Whether there is a ``metadata`` with a checkpoint-ts; not where the storage does not say so."""
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
            shown = islice(storage.listing(frozenset(known), {}), _SHOWN)
            folders = (stored.path.partition("/")[0] for stored in shown if "/" in stored.path)
            folder = next((name for name in folders if name not in known), None)
            if folder is None:
                return
            known.add(folder)
            yield replace(upstream, root=f"{upstream.root.rstrip('/')}/{folder}")
    except StorageConsumerError:
        return
