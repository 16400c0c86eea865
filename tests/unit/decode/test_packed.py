"""Columns as Arrow has them: the same values that Python's own readers find."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.changes.record_batches import packed_array
from storage_consumer.decode.kernels.arrays import Bytes, Offsets, Packed
from storage_consumer.decode.kernels.packed import packed_csv, packed_json

TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=8)
BYTES = st.lists(st.none() | st.binary(max_size=12), max_size=8)


def borders(fields: Sequence[str]) -> tuple[Bytes, Offsets, Offsets]:
    """Fields one after the other with a byte in between, as bytes, and where each begins and ends."""
    encoded = [field.encode() for field in fields]
    ends = np.cumsum([len(field) + 1 for field in encoded], dtype=np.int64) - 1
    starts = ends - np.array([*map(len, encoded)], np.int64)
    return np.frombuffer(b"\n".join([*encoded, b"\n"]), np.uint8), starts, ends


def values(packed: Packed | None) -> list[str | bytes | None]:
    """What Arrow makes of packed values."""
    assert packed is not None
    array = packed_array(packed)
    array.validate(full=True)
    found: list[str | bytes | None] = array.to_pylist()
    return found


@given(TEXTS, st.sampled_from("\"'|"))
def test_texts_of_csv(texts: list[str | None], quote: str) -> None:
    """Quotes around them go, doubled ones are one, and NULL without quotes is none."""
    fields = [r"\N" if text is None else quote + text.replace(quote, quote * 2) + quote for text in texts]
    assert values(packed_csv(*borders(fields), ord(quote), is_base64=False)) == texts


@given(BYTES)
def test_bytes_of_csv(given_bytes: list[bytes | None]) -> None:
    """They are in base64."""
    fields = [r"\N" if one is None else f'"{base64.b64encode(one).decode()}"' for one in given_bytes]
    assert values(packed_csv(*borders(fields), ord('"'), is_base64=True)) == given_bytes


def test_bare_fields_of_csv() -> None:
    """Numbers have no quotes."""
    assert values(packed_csv(*borders(["-1.50", r"\N", "1e300"]), ord('"'), is_base64=False)) == [
        "-1.50",
        None,
        "1e300",
    ]


@given(TEXTS, st.booleans())
def test_texts_of_json(texts: list[str | None], ascii_only: bool) -> None:  # noqa: FBT001 - hypothesis
    """Whatever is escaped, beyond 16 bits too."""
    fields = [json.dumps(text, ensure_ascii=ascii_only) for text in texts]
    assert values(packed_json(*borders(fields), is_binary=False)) == texts


@given(BYTES, st.booleans())
def test_bytes_of_json(given_bytes: list[bytes | None], ascii_only: bool) -> None:  # noqa: FBT001 - hypothesis
    """Each byte is the code point of the same number."""
    texts = [None if one is None else one.decode("latin-1") for one in given_bytes]
    fields = [json.dumps(text, ensure_ascii=ascii_only) for text in texts]
    assert values(packed_json(*borders(fields), is_binary=True)) == given_bytes


@pytest.mark.parametrize("field", ["12", "true"])
def test_what_is_no_string(field: str) -> None:
    """Values that are not strings are left to the plain reader."""
    assert packed_json(*borders(['"a"', field]), is_binary=False) is None
