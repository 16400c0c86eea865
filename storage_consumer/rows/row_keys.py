"""Order and repeats: which change of a key counts, which keys are equal, and their bucket.

The sequence of changes is (commit-ts, deletes before upserts, partition, dispatcher, date, file
number, row number); never arrival, file time or round. The part after the commit-ts is packed into
one integer, the *order*. A key has one digest, whatever the commit range and the directory that it
comes from: by it a quarantined row is found again.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from storage_consumer.decode.decoder import Values
from storage_consumer.decode.kernels.arrays import Offsets
from storage_consumer.decode.values import INTEGER_TYPES, WireKind
from storage_consumer.decode.wire_format import decode_line
from storage_consumer.model import folded_name
from storage_consumer.rows.spec import Fold, KeyPart, Mode, TablePlan

Row = TypeVar("Row", bound=Hashable)
"""What stands for a row: equal for two rows exactly if these are equal."""
Key = int | str | tuple[str, ...]
"""Equal for two rows exactly if their key is the same (for a LOOSE part: no coarser than the
target's collation).

One integer column gives integers, unless rows of another structure hold something else.
"""

# From the top: a bit for upserts, the rank of the file, the row number, a bit for births. 62 bits
# in all, so an order fits a signed integer.
_BIRTH_BITS, _ROW_BITS, _RANK_BITS = 1, 36, 24
_UPSERT = 1 << (_BIRTH_BITS + _ROW_BITS + _RANK_BITS)
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_MIXER, _MIXED_BITS = 0x9E3779B97F4A7C15, 33
"""Multiplicative hash: 2**64 / golden ratio, and the product's low bits to drop as too regular."""


class Action(Enum):
    """What becomes of the rows of a run; see `is_birth` for which rows came into being."""

    DELETE = "delete"
    """They go, and with them what the target finds equal to their keys."""
    REMOVE = "remove"
    """They go; born in this range too, so the target's row of another spelling is another."""
    INSERT = "insert"
    """They came into being in this commit range."""
    REPLACE = "replace"
    """They were there before it, perhaps under another spelling of their keys."""


class Run(NamedTuple):
    """Rows with which the same is to be done, in any order."""

    action: Action
    lines: Sequence[bytes]
    """The key's columns of rows that go, the written columns of the others."""


def order_of(rank: Any, row: Any, *, upsert: bool, birth: Any = False) -> Any:
    """Return the order of a row or, for arrays, rows: deletes first, then file rank, row number.

    `birth`: see `is_birth`.
    """
    return (
        (_UPSERT if upsert else 0) | rank << (_BIRTH_BITS + _ROW_BITS) | row << _BIRTH_BITS | birth
    )


def is_upsert(order: Any) -> Any:
    """Return whether the change of this order leaves a row; for an array, whether each does."""
    return order >= _UPSERT


def rank_of(order: Any) -> Any:
    """Return the rank of the file with the change of this order; for an array, each rank."""
    return order >> (_BIRTH_BITS + _ROW_BITS) & ((1 << _RANK_BITS) - 1)


def row_of(order: int) -> int:
    """Return the number of the row in its file."""
    return order >> _BIRTH_BITS & ((1 << _ROW_BITS) - 1)


def is_birth(order: Any) -> Any:
    """Return whether the row came into being by an insert; for an array, each.

    Of what is left of several changes of a key: whether the life that the last of them continues or
    ends began among them.
    """
    return order & 1 == 1


def sequence_of(order: Offsets, *, has_commit_ts: bool) -> Offsets:
    """Return what puts changes of one commit-ts in sequence.

    `has_commit_ts`: the commit-ts is the rows' own, so that deletes come first. Otherwise the place
    in the files decides, whatever the operation: TiCDC writes the rows of one sequence in commit
    order, with the deletes of a transaction first.
    """
    return order if has_commit_ts else order & (_UPSERT - 1)


def key_function(parts: Sequence[KeyPart], places: Sequence[int]) -> Callable[[Values], Key]:
    """Return the function from a row's values to its key; `places`: the parts' indexes.

    The function raises `ValueError` for a NULL in a key column.
    """
    folds = [_fold_text(part) for part in parts]
    if len(parts) == 1:
        place, fold, has_integers = places[0], folds[0], is_integer(parts)

        def single(values: Values) -> Key:
            text = values[place]
            if text is None:
                raise ValueError("NULL in a key column")
            if has_integers:
                # ``7`` and ``007`` become one key, as they are one to an integer column.
                return int(text) if _INTEGER.fullmatch(text) else text
            return fold(text) if fold else text

        return single

    def several(values: Values) -> Key:
        key = []
        for place, fold in zip(places, folds, strict=True):
            text = values[place]
            if text is None:
                raise ValueError("NULL in a key column")
            key.append(fold(text) if fold else text)
        return tuple(key)

    return several


def is_integer(parts: Sequence[KeyPart]) -> bool:
    """Return whether the key is one integer column."""
    return len(parts) == 1 and parts[0].column.type in INTEGER_TYPES


def _fold_text(part: KeyPart) -> Callable[[str], str] | None:
    """Return a function to one text for equal keys of a column; None if texts are equal."""
    prefix = part.prefix
    if prefix is not None:
        # Two hexadecimal digits for each byte.
        width = prefix * 2 if part.column.kind is WireKind.HEX else prefix
        return lambda text: text[:width]
    if part.fold is Fold.NUMBER:
        # Adding 0.0 turns -0.0 into 0.0.
        return lambda text: repr(float(text) + 0.0)
    return None


_OLD_FRACTIONS = str.maketrans("৴৵৶৷" + "༪༫༬༭༮༯༰༱༲༳", "1234" + "1234567890")
"""Fraction characters that collations treat as the digit in them."""


def coarse_image(text: str, *, beyond_bmp: bool = True) -> str:
    """Return the digits of a text: equal for any two texts that some collation finds equal.

    Collations ignore case, accents, width and punctuation and expand letters, each in its own way.
    None finds two texts equal whose digits differ once every numeral character (not ideographs,
    which are letters) is replaced by its digits. Older collations find all characters beyond U+FFFF
    equal to one another, newer ones give them weights of their own; `beyond_bmp`: the collation is
    a newer one.
    """
    # Most keys are ASCII, where the digits are the only numerals.
    if text.isascii():
        return "".join(filter(str.isdigit, text))
    if not beyond_bmp:
        text = "".join(sign for sign in text if sign <= "\uffff")
    return "".join(
        f"{unicodedata.numeric(sign):g}"
        for sign in unicodedata.normalize("NFKD", text.translate(_OLD_FRACTIONS))
        if unicodedata.category(sign)[0] == "N" and unicodedata.numeric(sign, None) is not None
    )


def image_function(parts: Sequence[KeyPart]) -> Callable[[Key], str]:
    """Return a function from a key to a text, the same for keys that the target may equate."""
    images = [_image(part) for part in parts]
    if len(parts) == 1:
        image: Callable[[Any], str] = images[0] or str
        return image

    def several(key: Any) -> str:
        # NUL between the parts, so that a border between two columns cannot move.
        return "\0".join(
            image(text) if image else text for text, image in zip(key, images, strict=True)
        )

    return several


def _image(part: KeyPart) -> Callable[[str], str] | None:
    """Return the image of one column's texts, None for themselves; a set's ignores order."""
    if part.fold is not Fold.LOOSE:
        return (lambda text: text.rstrip(" ")) if part.fold is Fold.PAD else None
    image = partial(coarse_image, beyond_bmp=part.beyond_bmp)
    return (lambda text: "".join(sorted(image(text)))) if part.column.type == "SET" else image


def compares_texts(parts: Sequence[KeyPart]) -> bool:
    """Return whether the target may find keys equal that the source tells apart."""
    return any(part.fold in (Fold.PAD, Fold.LOOSE) for part in parts)


def is_padded(parts: Sequence[KeyPart], keys: Iterable[Any]) -> bool:
    """Return whether a key has trailing spaces that the target ignores."""
    if len(parts) == 1:
        return parts[0].fold is Fold.PAD and any(key.endswith(" ") for key in keys)
    places = [place for place, part in enumerate(parts) if part.fold is Fold.PAD]
    return bool(places) and any(key[place].endswith(" ") for key in keys for place in places)


def bucket_function(
    parts: Sequence[KeyPart], partitions: int, stripe_bits: int
) -> Callable[[Key], int]:
    """Return a function from a key to its bucket; keys that the target may find equal share one."""
    if is_integer(parts):
        # CRC-32, since Python's own hash of a text differs from process to process.
        return lambda key: (
            stripe(key, partitions, stripe_bits)
            if isinstance(key, int)
            else zlib.crc32(str(key).encode()) % partitions
        )
    # Keys that the target's collation equates must meet in one task, or two write one row.
    image = image_function(parts)
    return lambda key: zlib.crc32(image(key).encode("utf-8", "surrogatepass")) % partitions


def stripe(key: int, partitions: int, bits: int) -> int:
    """Return the bucket of an integer key; see `TablePlan.stripe_bits`."""
    # Keys are often consecutive: the hash spreads their stripes evenly over the buckets. Its low
    # bits are dropped.
    return ((key >> bits) * _MIXER % (1 << 64) >> _MIXED_BITS) % partitions


def stripes(keys: Offsets, partitions: int, bits: int) -> Offsets:
    """Return `stripe` of each key."""
    # Unsigned arithmetic wraps as the modulo in `stripe` does: both give the same bucket.
    mixed = (keys >> bits).view(np.uint64) * np.uint64(_MIXER) >> np.uint64(_MIXED_BITS)
    return mixed.view(np.int64) % partitions


def long_runs(changes: Iterable[tuple[int, bytes]], images: Iterable[str]) -> Iterator[Run]:
    """Yield changes in sequence, as order and line, in runs: deletes, then upserts, and so on.

    A delete moves ahead of the upserts before it, unless one of them may be of the same row.
    `images`: those of the changes' keys; see `image_function`.
    """
    found: dict[Action, list[bytes]] = {action: [] for action in Action}
    written: set[str] = set()
    for (order, line), image in zip(changes, images, strict=True):
        if is_upsert(order):
            written.add(image)
        # Different images prove different rows: only an equal one keeps the delete last.
        elif image in written:
            yield from _runs(found)
            found, written = {action: [] for action in Action}, set()
        found[action_of(order)].append(line)
    yield from _runs(found)


def action_of(order: int) -> Action:
    """Return what is to be done with the row of a change."""
    if is_upsert(order):
        return Action.INSERT if is_birth(order) else Action.REPLACE
    return Action.REMOVE if is_birth(order) else Action.DELETE


def _runs(found: Mapping[Action, Sequence[bytes]]) -> Iterator[Run]:
    """Yield each that is not empty as a run."""
    yield from (Run(action, lines) for action, lines in found.items() if lines)


def delivered_once(changes: Iterable[tuple[int, Row]]) -> list[tuple[bool, Row]]:
    """Return events of a keyless commit-ts, each as often as at the source: deletes, inserts.

    `changes`: (order, row). A repeated delivery is another pass over the transaction, in other
    files. So the count of an event is the maximum over the passes, not their sum.

    TiCDC may cut a large transaction anywhere, so a file may begin with the rest of the one before
    it. A pass begins where a transaction does. A file continues the pass before it if its first
    rows are of this transaction and neither of the two contains the other.
    """
    most: Counter[tuple[bool, Row]] = Counter()
    files: dict[int, Counter[tuple[bool, Row]]] = {}
    first_rows: dict[int, int] = {}
    for order, row in changes:
        rank = rank_of(order)
        files.setdefault(rank, Counter())[is_upsert(order), row] += 1
        first_rows[rank] = min(row_of(order), first_rows.get(rank, row_of(order)))
    current: Counter[tuple[bool, Row]] = Counter()
    for rank in sorted(files):
        events = files[rank]
        # Only the first rows of the next file can be the rest of a transaction. Events that contain
        # the pass so far, or are contained in it, are a repetition of it.
        follows = rank - 1 in files and first_rows[rank] == 1
        if follows and not events <= current and not current <= events:
            current += events
        else:
            # The union of two counters keeps the larger count of each event.
            most |= current
            current = events
    most |= current
    ordered = sorted(most.items(), key=lambda item: item[0][0])
    return [event for event, count in ordered for _ in range(count)]


def has_lasting_keys(work: TablePlan) -> bool:
    """Return whether keys compare over commit ranges by value, not only by a server's collation."""
    written = {folded_name(column.name) for column in work.written}
    named = all(folded_name(part.column.name) in written for part in work.key)
    return work.mode is Mode.KEYED and named and all(part.is_lasting for part in work.key)


def key_signature(work: TablePlan) -> str:
    """Return what is the same for two plans exactly if their digests of one key are."""
    parts = [
        (
            folded_name(part.column.name),
            part.column.kind.value,
            part.fold.value,
            part.prefix,
            repr(part.form),
        )
        for part in work.key
    ]
    return json.dumps([work.mode.value, *parts])


def digest_function(work: TablePlan, *, key_only: bool) -> Callable[[bytes], str]:
    """Return the function from a line to its key's digest; `key_only`: lines have just the key."""
    names, folds = (
        [folded_name(column.name) for column in work.written],
        [_fold_text(part) for part in work.key],
    )
    places = (
        range(len(work.key))
        if key_only
        else [names.index(folded_name(part.column.name)) for part in work.key]
    )

    def digest(line: bytes) -> str:
        values = decode_line(line)
        texts = []
        for part, fold, place in zip(work.key, folds, places, strict=True):
            text = values[place]
            if text is not None:
                # Not a value of the type: then it is equal to nothing but its own text.
                with suppress(ValueError):
                    spelled = part.form.spell(text) if part.form else text
                    text = fold(spelled) if fold else spelled
            texts.append(text)
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    return digest
