"""Order and repeats: which of a key's changes counts, which keys are the same, and which bucket a change belongs to.

The sequence of changes is (commit ts, deletes before upserts, partition, dispatcher, date, file number, row number); never
arrival, file time or round. The part after the commit ts is packed into one integer, the *order*.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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


def row_of(order: int) -> int:
    """The number of the row in its file."""
    return order & ((1 << _ROW_BITS) - 1)


def place_in_files(physical_ts: int, rank: int, row: int) -> int:
    """What stands for the commit ts of a row that does not say it: its place in the files is its order.

    `physical_ts`: the millisecond of the commit as a TSO, where the file says that much, else 0. TiCDC writes the rows of one
    stream in commit order, deletes of a transaction first; a replayed transaction comes to its own millisecond again.
    """
    return physical_ts << (_RANK_BITS + _ROW_BITS) | rank << _ROW_BITS | row


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


_OLD_FRACTIONS = str.maketrans("৴৵৶৷" + "༪༫༬༭༮༯༰༱༲༳", "1234" + "1234567890")
"""Signs of fractions that collations take for the digit in them."""


def coarse_image(text: str, *, beyond_bmp: bool = True) -> str:
    """The digits of a text: equal for any two texts that some collation finds equal.

    Collations ignore case, accents, width, punctuation and expand letters, each in its own way; none tells two texts equal
    whose digits differ once every numeral sign (not ideographs, which are letters) is brought to its digits. Older collations
    find all signs beyond U+FFFF equal to one another, newer ones give them their own weights; `beyond_bmp`: the latter.
    """
    if text.isascii():
        return "".join(filter(str.isdigit, text))
    if not beyond_bmp:
        text = "".join(sign for sign in text if sign <= "\uffff")
    return "".join(
        f"{unicodedata.numeric(sign):g}"
        for sign in unicodedata.normalize("NFKD", text.translate(_OLD_FRACTIONS))
        if unicodedata.category(sign)[0] == "N" and unicodedata.numeric(sign, None) is not None
    )


def bucket_function(parts: Sequence[KeyPart], partitions: int) -> Callable[[Key], int]:
    """A function from a key to its bucket, so that keys the target may find equal are in the same one."""
    images = [partial(coarse_image, beyond_bmp=p.beyond_bmp) if p.fold is Fold.LOOSE else None for p in parts]
    if len(parts) == 1:
        image = images[0] or str
        return lambda key: zlib.crc32(image(key).encode("utf-8", "surrogatepass")) % partitions

    def bucket(key: Key) -> int:
        texts = [image(text) if image else text for text, image in zip(key, images, strict=True)]
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


def delivered_once(changes: Iterable[tuple[int, str]]) -> list[tuple[bool, str]]:
    """The events of one commit ts of a table without a key, each as often as the source made it: deletes, then inserts.

    `changes`: (order, row). A repeated delivery is another pass over the transaction, in other files, so an equal event counts
    as often as it is in the pass that has it most often, not as often as it is in all of them together.
    """
    most: Counter[tuple[bool, str]] = Counter()
    for delivered in _passes(changes):
        most |= delivered
    ordered = sorted(most.items(), key=lambda item: item[0][0])
    return [event for event, count in ordered for _ in range(count)]


def _passes(changes: Iterable[tuple[int, str]]) -> Iterator[Counter[tuple[bool, str]]]:
    """The events of each pass over one transaction.

    TiCDC cuts a large transaction where it will, so a file may begin with the rest of the one before it. A pass begins where
    a transaction does: a file whose first rows are neither among the pass before nor the same and more goes on with it.
    """
    files: dict[int, Counter[tuple[bool, str]]] = {}
    first_rows: dict[int, int] = {}
    for order, row in changes:
        rank = rank_of(order)
        files.setdefault(rank, Counter())[is_upsert(order), row] += 1
        first_rows[rank] = min(row_of(order), first_rows.get(rank, row_of(order)))
    current: Counter[tuple[bool, str]] = Counter()
    for rank in sorted(files):
        events = files[rank]
        follows = rank - 1 in files and first_rows[rank] == 1
        if follows and not events <= current and not current <= events:
            current += events
            continue
        yield current
        current = events
    yield current
