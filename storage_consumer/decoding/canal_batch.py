"""Messages of canal-json to one batch: msgspec reads them one by one, and all else is done to whole columns of texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from storage_consumer.decoding.canal_message import Shape
from storage_consumer.decoding.decoder import DELETE, INSERT, UPDATE, Tally, apart
from storage_consumer.decoding.lines import Lines
from storage_consumer.decoding.patterns import USUAL_INTEGER, repeated
from storage_consumer.decoding.wire import escaped
from storage_consumer.model import TableName, Window

OPERATIONS = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no message, or not one of the layout."""
_astuple = msgspec.structs.astuple
_USUAL_INTEGERS = re.compile(repeated(rf"{USUAL_INTEGER}\n"))

Texts = Sequence[str | None]
"""One column of a batch."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextBatch:
    """A `decoder.Batch` whose columns are texts."""

    numbers: NDArray[np.int64]
    ts: NDArray[np.uint64]
    operations: NDArray[np.int8]
    columns: Sequence[Texts]
    """By place in the layout, as wire texts."""

    def integers(self, place: int) -> NDArray[np.int64] | None:
        """See `decoder.Batch`."""
        texts = [text or "" for text in self.columns[place]]
        joined = "\n".join([*texts, ""])
        if joined.count("\n") != len(texts) or not _USUAL_INTEGERS.fullmatch(joined):
            return None
        try:
            return np.array([*map(int, texts)], np.int64)
        except OverflowError:
            return None

    def texts(self, place: int, chosen: NDArray[np.intp]) -> list[str | None]:
        """See `decoder.Batch`."""
        column = self.columns[place]
        return [*column] if len(chosen) == len(column) else [column[number] for number in chosen.tolist()]

    def lines(self, written: Sequence[int], chosen: NDArray[np.intp]) -> Lines:
        """See `decoder.Batch`."""
        columns = [escaped(self.texts(place, chosen)) for place in written]
        return Lines.of(list(map(str.encode, map("\t".join, zip(*columns, strict=True)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which messages are wanted, and what they look like."""

    shape: Shape
    window: Window
    first: int
    """Number of the first one in the file."""


def read_batch(asked: Asked, rows: Sequence[bytes], tally: Tally) -> tuple[TextBatch | None, list[int]]:
    """The changes inside the window of those messages of which nothing is odd, and the places of all others.

    The former are counted in `tally`, but for its `rows`.
    """
    places: Sequence[int] = range(len(rows))
    others: list[int] = []
    try:
        messages = [*map(asked.shape.decode, rows)]
    except UNREADABLE:
        places, messages, others = _readable(asked.shape.decode, rows)
    ts = _times(asked.shape.layout.table, messages)
    if ts is None:
        return None, list(range(len(rows)))
    inside, later = apart(ts, asked.window)
    chosen = list(compress(messages, inside.tolist()))
    images = [_astuple(message.data[0]) for message in chosen]
    try:
        columns = asked.shape.columns(images)
    except ValueError:
        return None, list(range(len(rows)))
    stays = _stays(asked.shape.key, chosen, images)
    numbers = np.array(places, np.int64)[inside]
    tally.add(ts, inside, later)
    others += numbers[~stays].tolist()
    batch = TextBatch(
        numbers=numbers[stays] + asked.first,
        ts=ts[inside][stays].view(np.uint64),
        operations=np.array([OPERATIONS[message.type] for message in chosen], np.int8)[stays],
        columns=columns if stays.all() else [list(compress(column, stays.tolist())) for column in columns],
    )
    return batch, sorted(others)


def _readable(decode: Callable[[bytes], Any], rows: Sequence[bytes]) -> tuple[list[int], list[Any], list[int]]:
    """The places of the messages that can be decoded, these messages, and the places of the others."""
    places, messages, others = [], [], []
    for place, row in enumerate(rows):
        try:
            messages.append(decode(row))
            places.append(place)
        except UNREADABLE:
            others.append(place)
    return places, messages, others


def _times(table: TableName, messages: Sequence[Any]) -> NDArray[np.int64] | None:
    """The commit ts of these messages, None where one is no row change of the table, by its name without case, or does not say it."""
    kinds = {(message.type, message.is_ddl, message.database, message.table) for message in messages}
    extensions = [message.tidb for message in messages]
    usual = all(
        kind in OPERATIONS and not is_ddl and TableName(schema=schema, table=name).folded() == table.folded()
        for kind, is_ddl, schema, name in kinds
    )
    if not usual or None in extensions:
        return None
    try:
        ts = np.array([extension.commit_ts for extension in extensions], np.int64)
    except OverflowError:
        return None
    return ts if (ts > 0).all() else None


def _stays(key: Sequence[int], messages: Sequence[Any], images: Sequence[Sequence[Any]]) -> NDArray[np.bool_]:
    """Which messages do not tell that they change their row's key; `images` are those of their data.

    Where rows have no key, what was before an update is told by all of its old image: it has to be looked at.
    """
    if not key:
        return np.array([message.type != "UPDATE" for message in messages], np.bool_)
    stays = np.ones(len(messages), np.bool_)
    updates = [n for n, message in enumerate(messages) if message.old is not None and message.type == "UPDATE"]
    former = [_astuple(messages[n].old[0]) for n in updates]
    for number, place in enumerate(key):
        told = [(n, old[number]) for n, old in zip(updates, former, strict=True) if old[number] is not UNSET]
        stays[[n for n, text in told if text != images[n][place]]] = False
    return stays
