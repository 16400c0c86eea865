"""Order and repeats: which of a key's changes counts, which keys are the same, and which bucket a change belongs to.

The sequence of changes is (commit ts, deletes before upserts, partition, dispatcher, date, file number, row number); never
arrival, file time or round. The part after the commit ts is packed into one integer, the *order*.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from storage_consumer.decoding.decoder import Values
from storage_consumer.decoding.values import WireKind
from storage_consumer.work import Fold, KeyPart

Key = str | tuple[str, ...]
"""Equal for two rows exactly when their key is the same (for a LOOSE part: no coarser than the target's collation)."""

_ROW_BITS, _RANK_BITS = 36, 24
_UPSERT = 1 << (_ROW_BITS + _RANK_BITS)


def order_of(rank: int, row: int, *, upsert: bool) -> int:
    """The order of a row: upserts after deletes, then the file's rank in sequence, then the row number."""
    return (_UPSERT if upsert else 0) | rank << _ROW_BITS | row


def is_upsert(order: int) -> bool:
    """Whether the change leaves a row behind."""
    return order >= _UPSERT


def rank_of(order: int) -> int:
    """The rank of the file that the change is in."""
    return order >> _ROW_BITS & ((1 << _RANK_BITS) - 1)


def key_function(parts: Sequence[KeyPart], places: Sequence[int]) -> Callable[[Values], Key]:
    """A function from a row's values to its key. `places`: where each part is in the values.

    It raises `ValueError` for a NULL in a key column.
    """
    folds = [_fold_text(part) for part in parts]
    if len(parts) == 1:
        place, fold = places[0], folds[0]

        def single(values: Values) -> Key:
            text = values[place]
            if text is None:
                message = "NULL in a key column"
                raise ValueError(message)
            return fold(text) if fold else text

        return single

    def several(values: Values) -> Key:
        key = []
        for place, fold in zip(places, folds, strict=True):
            text = values[place]
            if text is None:
                message = "NULL in a key column"
                raise ValueError(message)
            key.append(fold(text) if fold else text)
        return tuple(key)

    return several


def _fold_text(part: KeyPart) -> Callable[[str], str] | None:
    """A function that brings equal key texts of one column to the same text; None: they are the same already."""
    prefix = part.prefix
    if prefix is not None:
        width = prefix * 2 if part.column.kind is WireKind.HEX else prefix
        return lambda text: text[:width]
    if part.fold is Fold.PAD:
        return lambda text: text.rstrip(" ")
    if part.fold is Fold.NUMBER:
        return lambda text: repr(float(text) + 0.0)
    return None


def coarse_image(text: str) -> str:
    """The digits of a text: equal for any two texts that some collation finds equal.

    Collations ignore case, accents, width, punctuation and expand letters, each in its own way; none tells two texts equal
    whose digits differ once every numeral sign is brought to its value.
    """
    if text.isascii():
        return "".join(filter(str.isdigit, text))
    return "".join(
        f"{unicodedata.numeric(sign):g}"
        for sign in unicodedata.normalize("NFKD", text)
        if unicodedata.numeric(sign, None) is not None
    )


def bucket_function(parts: Sequence[KeyPart], partitions: int) -> Callable[[Key], int]:
    """A function from a key to its bucket, so that keys the target may find equal are in the same one."""
    if len(parts) == 1:
        if parts[0].fold is Fold.LOOSE:
            return lambda key: zlib.crc32(coarse_image(str(key)).encode()) % partitions
        return lambda key: zlib.crc32(key.encode("utf-8", "surrogatepass")) % partitions  # type: ignore[union-attr] # one part: a text
    loose = [part.fold is Fold.LOOSE for part in parts]

    def bucket(key: Key) -> int:
        texts = [coarse_image(text) if coarse else text for text, coarse in zip(key, loose, strict=True)]
        return zlib.crc32("\0".join(texts).encode("utf-8", "surrogatepass")) % partitions

    return bucket


def one_bucket(table_index: int, partitions: int) -> int:
    """The bucket of a table without a key."""
    return zlib.crc32(str(table_index).encode()) % partitions


def fold(states: dict[Key, tuple[int, int, Any]], key: Key, commit_ts: int, order: int, row: Any) -> None:
    """Keep the later of the key's state and this change."""
    current = states.get(key)
    if current is None or (commit_ts, order) > (current[0], current[1]):
        states[key] = (commit_ts, order, row)


def runs(changes: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[bool, list[Any]]]:
    """Changes in sequence, cut into runs of upserts (True) and deletes (False)."""
    upsert = False
    run: list[Any] = []
    for _, order, row in sorted(changes, key=lambda change: change[:2]):
        if run and is_upsert(order) != upsert:
            yield upsert, run
            run = []
        upsert = is_upsert(order)
        run.append(row)
    if run:
        yield upsert, run


def delivered_once(changes: Sequence[tuple[int, str]]) -> list[tuple[bool, str]]:
    """The events of one commit ts of a table without a key, each as often as the source made it: deletes, then inserts.

    `changes`: (order, row). A repeated delivery writes the transaction again into another file, so an equal event counts as
    often as it is in the file that has it most often, not as often as it is in all files together.
    """
    per_file: Counter[tuple[bool, str, int]] = Counter()
    for order, row in changes:
        per_file[is_upsert(order), row, rank_of(order)] += 1
    most: dict[tuple[bool, str], int] = {}
    for (upsert, row, _), count in per_file.items():
        most[upsert, row] = max(most.get((upsert, row), 0), count)
    ordered = sorted(most.items(), key=lambda item: item[0][0])
    return [event for event, count in ordered for _ in range(count)]
