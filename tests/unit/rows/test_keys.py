"""Order, repeats, equal keys and buckets."""

from __future__ import annotations

import sys
import unicodedata
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_consumer.decode.values import WireKind
from storage_consumer.rows.row_keys import (
    Action,
    bucket_function,
    coarse_image,
    delivered_once,
    image_function,
    is_upsert,
    key_function,
    long_runs,
    order_of,
    rank_of,
    row_of,
    stripe,
    stripes,
)
from storage_consumer.rows.spec import Fold, KeyPart, WireColumn

BOLD_ONE = "\U0001d7cf"


def part(how: Fold, prefix: int | None = None, *, kind: WireKind = WireKind.TEXT, beyond_bmp: bool = True) -> KeyPart:
    """A key column."""
    column = WireColumn(name="k", kind=kind, type="VARCHAR")
    return KeyPart(column=column, fold=how, prefix=prefix, beyond_bmp=beyond_bmp)


def integer() -> KeyPart:
    """An integer key column."""
    return KeyPart(column=WireColumn(name="k", kind=WireKind.TEXT, type="BIGINT"), fold=Fold.EXACT)


def test_order() -> None:
    """Deletes go before upserts, then files by rank, then rows; the parts come out as they went in."""
    places = [(False, 0, 1), (False, 0, 2**36 - 1), (False, 1, 1), (False, 2**24 - 1, 5), (True, 0, 1), (True, 7, 3)]
    orders = [order_of(rank, row, upsert=upsert) for upsert, rank, row in places]
    assert orders == sorted(set(orders))
    assert [(is_upsert(order), rank_of(order), row_of(order)) for order in orders] == places


@pytest.mark.parametrize(
    ("key", "one", "other", "equal"),
    [
        (part(Fold.EXACT), "a", "a ", False),
        (part(Fold.EXACT), "a", "A", False),
        (part(Fold.PAD), "a", "a   ", False),
        (part(Fold.PAD), "", "  ", False),
        (part(Fold.PAD), " a", "a", False),
        (part(Fold.PAD), "a\t", "a", False),
        (part(Fold.PAD), "a\u00a0", "a", False),
        (part(Fold.NUMBER), "-0", "0", True),
        (part(Fold.NUMBER), "1e0", "1", True),
        (part(Fold.NUMBER), "1.50", "1.5", True),
        (part(Fold.NUMBER), "1e+06", "1000000", True),
        (part(Fold.NUMBER), "1e300", "1e301", False),
        (part(Fold.NUMBER), "9007199254740993.5", "9007199254740995", False),
        (part(Fold.EXACT, 2), "abc", "abd", True),
        (part(Fold.EXACT, 2), "a", "ab", False),
        (part(Fold.EXACT, 1), "😀a", "😀b", True),
        (part(Fold.EXACT, 2, kind=WireKind.HEX), "AABBCC", "AABBDD", True),
        (part(Fold.EXACT, 2, kind=WireKind.HEX), "AABB", "AACC", False),
    ],
)
def test_keys(key: KeyPart, one: str, other: str, equal: bool) -> None:  # noqa: FBT001 - a column of the table
    """Two texts are one key exactly where the target says so, alone or beside another column (C19)."""
    single, several = key_function([key], [1]), key_function([part(Fold.EXACT), key], [0, 1])
    assert (single(("x", one)) == single(("x", other))) is equal
    assert (several(("x", one)) == several(("x", other))) is equal
    assert several(("x", one)) != several(("y", one))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("18446744073709551615", 2**64 - 1),
        ("007", 7),
        ("-0", 0),
        ("5.5", "5.5"),
        ("0", 0),
        ("abc", "abc"),
        ("1_0", "1_0"),
        ("٣", "٣"),
    ],
)
def test_integer_key(text: str, expected: int | str) -> None:
    """A key of one integer column is a number however it is written; what is no integer stays a text."""
    assert key_function([integer()], [1])(("x", text)) == expected


def test_null_in_a_key() -> None:
    """A NULL is no key."""
    for keys in ([part(Fold.EXACT)], [part(Fold.EXACT), part(Fold.EXACT)]):
        with pytest.raises(ValueError, match="NULL in a key column"):
            key_function(keys, range(len(keys)))((None, None))


# the coarse image


def variants(text: str) -> list[str]:
    """The text under foldings that some collation makes."""
    decomposed = unicodedata.normalize("NFKD", text)
    bare = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    wide = "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)
    digits = [
        "".join(chr(zero + int(sign)) if sign in "0123456789" else sign for sign in text)
        for zero in (0x660, 0x966, 0xE50, 0x1D7CE)
    ]
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC")]
    return [text.casefold(), text.upper(), text.lower(), text.swapcase(), decomposed, bare, wide, *digits, *forms]


@settings(max_examples=150)
@given(st.text(max_size=8) | st.text("aAäÄß12²½ⅧΣς\u017f\u212aŉ\u0661๑\U0001d7cf", max_size=8))
def test_image_outlives_folding(text: str) -> None:
    """Texts that are equal under any folding have equal images, so they meet in one bucket."""
    assert {coarse_image(variant) for variant in variants(text)} == {coarse_image(text)}


def test_image_of_every_sign() -> None:
    """No single sign of Unicode changes its image under a folding."""
    signs = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF)
    odd = [
        hex(ord(sign))
        for sign in signs
        if not sign.isascii()
        and unicodedata.category(sign)[0] in "LN"
        and {
            coarse_image(v) for v in (sign.casefold(), sign.upper(), sign.lower(), unicodedata.normalize("NFKD", sign))
        }
        != {coarse_image(sign)}
    ]
    assert odd == []


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("INV-2024-7", "20247"),
        ("٢٠٢٤", "2024"),
        ("x²", "2"),
        ("⑩", "10"),
        ("௰", "10"),
        ("一", ""),
        ("Ⅷ", ""),
        ("\U0001d7cf", "1"),
    ],
)
def test_image(text: str, image: str) -> None:
    """The image is the digits, of whatever script; ideographs are letters."""
    assert coarse_image(text) == image


@pytest.mark.parametrize(
    ("sign", "digit"), [*zip("༪༫༬༭༮༯༰༱༲༳", "1234567890", strict=True), *zip("৴৵৶৷", "1234", strict=True)]
)
def test_image_of_old_fractions(sign: str, digit: str) -> None:
    """Collations take some signs of fractions for the digit in them, so the image does."""
    assert coarse_image(sign) == digit


def test_image_for_older_collations() -> None:
    """Older collations find all characters beyond U+FFFF equal, digits among them."""
    assert {coarse_image(f"a{sign}7", beyond_bmp=False) for sign in "😀\U0001d7cf\U0001d7d0𐄇\ufffd"} == {"7"}
    bucket = bucket_function([part(Fold.LOOSE, beyond_bmp=False)], 1000, 10)
    assert bucket(BOLD_ONE) == bucket("😀")
    assert bucket_function([part(Fold.LOOSE)], 1000, 10)(BOLD_ONE) == bucket_function([part(Fold.LOOSE)], 1000, 10)("1")


def test_buckets() -> None:
    """Keys spread over all buckets, the same one always goes to the same, and a text with lone surrogates has one."""
    single, several = bucket_function([part(Fold.EXACT)], 8, 10), bucket_function([part(Fold.EXACT)] * 2, 8, 10)
    assert (
        {single(str(number)) for number in range(200)} == {several((str(n), "x")) for n in range(200)} == set(range(8))
    )
    assert single("\ud800") in range(8)


def test_stripes() -> None:
    """An integer's bucket is the same alone and in an array; neighbours share one, and stripes spread over all."""
    numbers = [0, 1, 1023, 1024, -1, -1024, -1025, 2**63 - 1, -(2**63), *range(0, 1 << 20, 1024)]
    found = [stripe(number, 7, 10) for number in numbers]
    assert stripes(np.array(numbers, np.int64), 7, 10).tolist() == found
    assert found[0] == found[1] == found[2]
    assert set(found) == set(range(7))
    bucket = bucket_function([integer()], 7, 10)
    assert [bucket(number) for number in numbers] == found


def test_loose_part_of_a_key() -> None:
    """Of a key of two columns the loose one counts by its image, the other one to the letter."""
    bucket = bucket_function([part(Fold.LOOSE), part(Fold.EXACT)], 10_000, 10)
    assert bucket(("Äb1", "x")) == bucket(("äB\uff11", "x"))
    assert bucket(("Äb1", "x")) != bucket(("Äb1", "X"))


# runs


def test_long_runs() -> None:
    """A delete goes before upserts that are surely of other rows, and stays behind those that may be of its own."""
    told = [(True, b"u1"), (False, b"d2"), (True, b"u3"), (False, b"d1"), (True, b"u2"), (False, b"d4")]
    changes = [(order_of(0, 1, upsert=upsert), line) for upsert, line in told]
    keys = [("a", "x1"), ("a", "x2"), ("a", "x3"), ("a", "y1"), ("a", "X2"), ("b", "1")]
    images = map(image_function((part(Fold.EXACT), part(Fold.LOOSE))), keys)
    assert list(long_runs(changes, images)) == [
        (Action.DELETE, [b"d2"]),
        (Action.REPLACE, [b"u1", b"u3"]),
        (Action.DELETE, [b"d1", b"d4"]),
        (Action.REPLACE, [b"u2"]),
    ]
    assert list(long_runs([], [])) == []


# events of a table without a key


def events(*files: str) -> list[tuple[int, bytes]]:
    """Per file a text of events: ``+a`` an insert of row a, ``-a`` a delete; ``.`` stands for a row of another commit ts."""
    found = []
    for rank, text in enumerate(files):
        rows = text.split()
        found += [
            (order_of(rank, number, upsert=row[0] == "+"), row[1:].encode())
            for number, row in enumerate(rows, 1)
            if row != "."
        ]
    return found


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["+a"], "+a"),
        (["+a +a"], "+a +a"),
        (["+a +a", "+a +a"], "+a +a"),
        (["+a +a +b", ". +a +a +b"], "+a +a +b"),
        (["+a", "+a +a +b"], "+a +a +b"),
        (["+a +a +b", "+a"], "+a +a +b"),
        (["+a -b", "-b +a"], "-b +a"),
        (["-a -a", "-a"], "-a -a"),
        (["+a +b", "+b +c"], "+a +b +b +c"),
        (["+a +b", ". +b +c"], "+a +b +c"),
        (["+a +b", "+c", "+a +b +c"], "+a +b +c"),
        (["+a +b +b", "+a +c", "+a +b +b", "+a +c"], "+a +a +b +b +c"),
    ],
    ids=" | ".join,
)
def test_delivered_once(files: list[str], expected: str) -> None:
    """A repeated pass over a transaction counts once, the rest of a transaction that was cut counts too."""
    found = delivered_once(events(*files))
    assert sorted(("+" if upsert else "-") + row.decode() for upsert, row in found) == sorted(expected.split())
    assert [upsert for upsert, _ in found] == sorted(upsert for upsert, _ in found)


def test_files_apart_are_repeats() -> None:
    """Only the very next file can go on with a cut transaction."""
    apart = [(order_of(0, 1, upsert=True), b"a"), (order_of(0, 2, upsert=True), b"b")]
    apart += [(order_of(2, 1, upsert=True), b"b"), (order_of(2, 2, upsert=True), b"c")]
    counts: dict[bytes, int] = defaultdict(int)
    for _, row in delivered_once(apart):
        counts[row] += 1
    assert counts == {b"a": 1, b"b": 1, b"c": 1}
