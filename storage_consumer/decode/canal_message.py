"""A canal-json message as Python objects, and its row images as wire texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from storage_consumer.decode.decoder import ABSENT, SELECTED, RowLayout, Values, is_hidden
from storage_consumer.decode.values import Converter, grammar
from storage_consumer.model import TableColumn, folded_name

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors that msgspec raises for bytes that are not a message, or not one of the layout."""
Image = dict[str, str | None]
Texts = Sequence[Any]
"""A row image in layout order: texts, None for NULL, and ``UNSET`` for absent columns."""

_astuple = msgspec.structs.astuple


class _Extension(msgspec.Struct, rename="camel", gc=False):
    commit_ts: int = 0


class _Head(msgspec.Struct, rename="camel", gc=False, kw_only=True):
    """The fields read of every message besides its row images; all other fields are ignored."""

    type: str
    database: str
    table: str
    is_ddl: bool = False
    es: int = 0
    """Milliseconds: the physical part of the commit-ts."""
    tidb: _Extension | None = msgspec.field(name="_tidb", default=None)


class Message(_Head, gc=False, kw_only=True):
    """A message whose images are dictionaries: any message can be read as one."""

    data: tuple[Image]
    old: tuple[Image] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShape:
    """A layout, prepared for many messages."""

    layout: RowLayout
    columns: tuple[TableColumn, ...]
    """The layout's columns that messages have; columns are given by their index among these."""
    names: tuple[str, ...]
    place_of: tuple[int, ...]
    """For each column of the layout, its index among these; -1 if the messages lack it."""
    key: tuple[int, ...]
    """The columns that matter in an old image, unless one of them changed; empty means all."""
    decode: Callable[[bytes], Any]
    """Decoder of a message whose images are structs of exactly these columns.

    `data` has all of them, `old` those that matter, each of which may be missing. It refuses a
    message with other columns (except in an `old` of which only some matter), so that from here on
    values go by position. What it refuses is to be tried with `decode_any`.
    """
    checked: tuple[int, ...]
    """The columns whose texts have a grammar."""
    pick: Callable[[Texts], tuple[str, ...]]
    """Function that picks their texts."""
    matches: Callable[[str], object]
    """Whether all of these texts, joined by LF, match their grammars; no grammar accepts an LF."""
    conversions: tuple[tuple[int, Converter], ...]

    def values(self, texts: Texts) -> Values:
        """Return a full row image's wire texts; raise `ValueError`, naming the column."""
        if self.checked:
            try:
                # One match for all columns; only a failure or a NULL is worth a look at each.
                # An LF inside a text is one too many for the pattern, so joining cannot hide a
                # border.
                if not self.matches("\n".join(self.pick(texts))):
                    self._check(texts)
            except TypeError:  # a NULL among them
                self._check(texts)
        values = self._converted(texts) if self.conversions else tuple(texts)
        if len(values) == len(self.place_of):
            return values
        return tuple([values[place] if place >= 0 else ABSENT for place in self.place_of])

    def _check(self, texts: Texts) -> None:
        """Raise `ValueError` for the first text that does not match its column's grammar."""
        for index in self.checked:
            column, text = self.columns[index], texts[index]
            if text is not None and not re.fullmatch(grammar(column, "canal-json"), text):
                raise ValueError(
                    f"column {column.name} ({column.type}): {text[:40]!r} does not have the form of such a value"
                )

    def lacking(self, texts: Texts) -> str:
        """Return why an image that leaves out columns is not enough."""
        missing = ", ".join(
            name for name, text in zip(self.names, texts, strict=True) if text is UNSET
        )
        return self._mismatch(f"lacks the column {missing}")

    def _converted(self, texts: Texts) -> Values:
        values = list(texts)
        index = 0
        try:
            for index, convert in self.conversions:
                text = values[index]
                if text is not None:
                    values[index] = convert(text)
        except ValueError as error:
            raise ValueError(f"column {self.names[index]}: {error}") from error
        return tuple(values)

    def texts(self, image: Any) -> Texts:
        """Return an image's texts in layout order; raise `ValueError` for an unknown column."""
        if not isinstance(image, dict):
            return _astuple(image)
        # A hidden column is no reason to refuse a row.
        extra = [name for name in image if name not in self.names and not is_hidden(name)]
        if extra:
            missing = [name for name in self.names if name not in image]
            lacks = f"lacks the column {', '.join(missing)} and " if missing else ""
            raise ValueError(self._mismatch(f"{lacks}has the unknown column {', '.join(extra)}"))
        return [image.get(name, UNSET) for name in self.names]

    def former(self, image: Any, data: Texts) -> Texts:
        """Return an old image's texts; absent or irrelevant columns are taken from `data`."""
        if not self.key or isinstance(image, dict):
            return [
                now if old is UNSET else old
                for old, now in zip(self.texts(image), data, strict=True)
            ]
        texts = list(data)
        # Only the key is read of an old image; the rest comes from the new one and is not compared.
        for place, old in zip(self.key, _astuple(image), strict=True):
            if old is not UNSET:
                texts[place] = old
        return texts

    def whole(self, image: Image, data: Texts) -> Texts:
        """Return all texts of an old image, absent ones from `data`; skip unknown columns."""
        return [image.get(name, now) for name, now in zip(self.names, data, strict=True)]

    def _mismatch(self, how: str) -> str:
        return (
            f"the row {how}; {self.layout.table} should have {', '.join(self.names)}. Possible reasons: a column that "
            f"is a virtual generated column on one side only; or {SELECTED}"
        )

    def fitting(
        self, image: Mapping[str, Any], key: tuple[int, ...], *, is_delete: bool
    ) -> MessageShape:
        """Return the shape for an image's columns if selectors may explain it; else this one.

        `key`: as for `shape_of`. A delete may also have nothing but its key, by
        `delete-only-output-handle-key-columns`.
        """
        columns = self.layout.columns
        present = tuple(place for place, column in enumerate(columns) if column.name in image)
        lacking = {folded_name(column.name) for column in columns if column.name not in image}
        has_more = bool(present) and (
            not is_delete or any(not columns[place].is_pk for place in present)
        )
        if len(present) == len(columns):
            return shape_of(self.layout, key)
        return (
            shape_of(self.layout, key, present)
            if has_more and lacking <= self.layout.may_lack
            else self
        )


decode_any = msgspec.json.Decoder(Message).decode
"""Decoder of a message with whatever columns it has."""


@lru_cache(maxsize=1024)
def shape_of(
    layout: RowLayout, key: tuple[int, ...] = (), present: tuple[int, ...] = ()
) -> MessageShape:
    """Return a layout's shape, cached per process; `key`: `MessageShape`'s, as indexes.

    `present`: indexes of the columns that the messages have; none for all.
    """
    present = present or tuple(range(len(layout.columns)))
    place_of = tuple(present.index(p) if p in present else -1 for p in range(len(layout.columns)))
    columns, key = (
        tuple(layout.columns[place] for place in present),
        tuple(place_of[place] for place in key),
    )
    names = tuple(column.name for column in columns)
    grammars = [grammar(column, "canal-json") for column in columns]
    checked = tuple(index for index, form in enumerate(grammars) if form)
    conversions = (
        (index, layout.converter(place, "canal-json")) for index, place in enumerate(present)
    )
    return MessageShape(
        layout=layout,
        columns=columns,
        names=names,
        place_of=place_of,
        key=key,
        decode=_decode(names, key),
        checked=checked,
        # With one index `itemgetter` returns no tuple.
        pick=itemgetter(*checked)
        if len(checked) > 1
        else lambda texts: tuple(texts[index] for index in checked),
        matches=re.compile("\n".join(form for form in grammars if form)).fullmatch,
        conversions=tuple(
            (index, convert) for index, convert in conversions if convert is not None
        ),
    )


def _decode(names: tuple[str, ...], key: tuple[int, ...]) -> Callable[[bytes], Any]:
    """Return the function of `MessageShape.decode`."""
    if any(re.search(r'[\\"\x00-\x1f]', name) for name in names):
        return decode_any  # msgspec accepts no such field name
    # Attributes need Python names; `rename` gives them the column's names in the message.
    fields = [f"column{index}" for index in range(len(names))]
    rename = dict(zip(fields, names, strict=True))
    # No cycles can arise in messages, so the collector need not look at them (`gc=False`).
    whole = msgspec.defstruct(
        "_Whole",
        [(name, str | None) for name in fields],
        rename=rename,
        forbid_unknown_fields=True,
        gc=False,
    )
    part = msgspec.defstruct(
        "_Part",
        [(fields[place], str | None | UnsetType, UNSET) for place in key or range(len(fields))],
        rename=rename,
        # With a key, `old` may hold columns that do not matter.
        forbid_unknown_fields=not key,
        gc=False,
    )
    message = msgspec.defstruct(
        "_Message",
        [("data", tuple[whole]), ("old", tuple[part] | None, None)],  # type: ignore[valid-type] # created at run time
        bases=(_Head,),
        kw_only=True,
        gc=False,
    )
    return msgspec.json.Decoder(message).decode
