"""One digest for one key, whatever the commit range and the directory that it comes from: by it a quarantined row is found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from storage_consumer.decode.wire_format import decode_line
from storage_consumer.job.spec import KeyPart, Mode, TablePlan
from storage_consumer.model import folded_name
from storage_consumer.order.keys import folded_text


def has_lasting_keys(work: TablePlan) -> bool:
    """Return whether two keys of the table can be compared over commit ranges: by value, and not only by a collation of the server."""
    written = {folded_name(column.name) for column in work.written}
    named = all(folded_name(part.column.name) in written for part in work.key)
    return work.mode is Mode.KEYED and named and all(part.is_lasting for part in work.key)


def key_signature(work: TablePlan) -> str:
    """Return what is the same for two plans exactly if their digests of one key are."""
    parts = [
        (folded_name(part.column.name), part.column.kind.value, part.fold.value, part.prefix, repr(part.form))
        for part in work.key
    ]
    return json.dumps([work.mode.value, *parts])


def digest_function(work: TablePlan, *, key_only: bool) -> Callable[[bytes], str]:
    """Return a function from a line to the digest of its key. With `key_only`, lines have the key's columns instead of the written ones."""
    names = [folded_name(column.name) for column in work.written]
    places = range(len(work.key)) if key_only else [names.index(folded_name(part.column.name)) for part in work.key]

    def digest(line: bytes) -> str:
        values = decode_line(line)
        texts = [_canonical(part, values[place]) for part, place in zip(work.key, places, strict=True)]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()

    return digest


def _canonical(part: KeyPart, text: str | None) -> str | None:
    if text is None:
        return None
    if part.form is not None:
        try:
            text = part.form.spell(text)
        except ValueError:
            # Not a value of the type: then it is equal to nothing but its own text.
            return text
    return folded_text(part, text)
