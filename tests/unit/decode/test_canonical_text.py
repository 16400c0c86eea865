"""The one text of a value that is written in several ways."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.decode.values import Spelling, ValueForm

NUMBERS = st.from_regex(r"-?[0-9]{1,12}(\.[0-9]{1,12})?([eE][-+]?[0-9]{1,3})?", fullmatch=True)


@pytest.mark.parametrize(
    ("form", "texts", "spelled"),
    [
        (ValueForm.NUMBER, ["3.5", "3.500", "003.50", "35e-1", "0.35E+1"], "3.5"),
        (ValueForm.NUMBER, ["0", "-0", "0.000", "-0e9", "0000"], "0"),
        (ValueForm.NUMBER, ["1000000", "1e+06", "1000000.0"], "1000000"),
        (ValueForm.NUMBER, ["1e999999999", "10e999999998"], "1e999999999"),
        (ValueForm.NUMBER, ["-1e-200"], "-1e-200"),
        (ValueForm.NUMBER, ["12345678901234567890123456789012345678.9"], "12345678901234567890123456789012345678.9"),
        (ValueForm.NEAREST_SINGLE, ["0.1", "0.10000000149011612"], "0.10000000149011612"),
        (ValueForm.NEAREST_SINGLE, ["1e300", "10e299"], "1e300"),
        (ValueForm.SINGLE, ["0.10000000149011612", "0.100000001490116119384765625"], "0.10000000149011612"),
        (ValueForm.SINGLE, ["0.1", "0.10"], "0.1"),
        (ValueForm.MOMENT, ["2024-01-31", "2024-01-31 00:00:00", "2024-01-31 00:00:00.000"], "2024-01-31 00:00:00"),
        (ValueForm.MOMENT, ["2024-01-31 10:00:00.5", "2024-01-31 10:00:00.500000"], "2024-01-31 10:00:00.5"),
        (ValueForm.DAY, ["2024-01-31", "2024-01-31 00:00:00", "2024-01-31 00:00:00.000"], "2024-01-31"),
        (ValueForm.DAY, ["2024-01-31 00:00:00.100"], "2024-01-31 00:00:00.1"),
        (ValueForm.TIME, ["10:00:00", "10:00:00.000", "010:00:00"], "10:00:00"),
        (ValueForm.TIME, ["00:00:00", "-00:00:00.00"], "00:00:00"),
        (ValueForm.TIME, ["-00:00:00.50"], "-00:00:00.5"),
    ],
)
def test_one_text(form: ValueForm, texts: list[str], spelled: str) -> None:
    """All texts of one value become the same one, which stays itself."""
    assert {Spelling(form).spell(text) for text in (*texts, spelled)} == {spelled}


@pytest.mark.parametrize(
    "form",
    [ValueForm.NUMBER, ValueForm.SINGLE, ValueForm.NEAREST_SINGLE, ValueForm.MOMENT, ValueForm.DAY, ValueForm.TIME],
)
@pytest.mark.parametrize("text", ["", "abc", "1_0", "٣", "NaN", "2024-1-31", "10:00", "1e9999999999", "Infinity"])
def test_no_value(form: ValueForm, text: str) -> None:
    """A text that is no such value is refused: nobody knows its form."""
    with pytest.raises(ValueError, match="is not a"):
        Spelling(form).spell(text)


@pytest.mark.parametrize(
    ("members", "text", "spelled"),
    [
        (("b", "a"), "a,b", "b,a"),
        (("b", "a"), "b", "b"),
        (("b", "a"), "", ""),
        (("X1", "y2"), "Y2,x1", "X1,y2"),
    ],
)
def test_members(members: tuple[str, ...], text: str, spelled: str) -> None:
    """Members come in the target's sequence, by the target's own names."""
    assert Spelling(ValueForm.MEMBERS, members=members).spell(text) == spelled


@pytest.mark.parametrize(("members", "text"), [(("a",), "a,c"), (("a", "A"), "ä"), ((), "a")])
def test_unknown_member(members: tuple[str, ...], text: str) -> None:
    """A member that the target's column lacks has no place in the sequence."""
    with pytest.raises(ValueError, match="a member that the target's column lacks"):
        Spelling(ValueForm.MEMBERS, members=members).spell(text)


def test_padding() -> None:
    """Bytes get NULs up to the column's length; longer ones stay as they are."""
    spelling = Spelling(ValueForm.PADDED, length=3)
    assert [spelling.spell(text) for text in ("61", "616200", "61626364")] == ["610000", "616200", "61626364"]


@given(one=NUMBERS, other=NUMBERS)
def test_numbers_by_value(one: str, other: str) -> None:
    """Two numbers have one text exactly if they are equal, and the text is that number."""
    spelled = [Spelling(ValueForm.NUMBER).spell(text) for text in (one, other)]
    assert (spelled[0] == spelled[1]) is (Decimal(one) == Decimal(other))
    assert Decimal(spelled[0]) == Decimal(one)
