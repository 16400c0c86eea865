"""The handle key that the classic architecture writes before a row's values: passed over, or refused where it is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage_consumer.config.settings import CsvOptions
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import RowLayout, Values
from storage_consumer.decode.kernels.arrays import INSERT
from storage_consumer.errors import UndecodableRow
from storage_consumer.model import CommitRange
from tests.unit.decode.encoders import OPTIONS, SOURCE, TS, file_read, from_csv, layout
from tests.unit.decode.encoders import written_row as row

SIZES = pytest.mark.parametrize("size", [1, 5, 1 << 20])


def values(data: bytes | str, *kinds: str, size: int = 1 << 20) -> list[Values]:
    """The values of each row."""
    return [change[3] for change in from_csv(data, *kinds, options=HANDLE, size=size)]


def refused(data: bytes | str, *kinds: str) -> UndecodableRow:
    """The error of a file that does not decode."""
    with pytest.raises(UndecodableRow) as caught:
        from_csv(data, *kinds, options=HANDLE)
    return caught.value


HANDLE = replace(OPTIONS, output_handle_key=True)


@SIZES
@pytest.mark.parametrize("key", ['"1",', '"{1, ""x""}",', '"",', ""])
def test_handle_key(key: str, size: int) -> None:
    """The handle key is passed over where it is written, which the first row says by its number of fields."""
    data = row(f'{key}"a"', "1") * 3
    assert values(data, "TEXT", "INT", size=size) == [("a", "1")] * 3


def test_handle_key_that_is_no_text() -> None:
    """A handle key may be any bytes, other fields not."""
    data = row('"{#}"', '"a"', "1").encode().replace(b"#", b"\xff")
    assert values(data, "TEXT", "INT") == [("a", "1")]
    broken = row('"1"', '"#"', "1").encode().replace(b"#", b"\xff")
    assert "it is not UTF-8" in str(refused(data + broken, "TEXT", "INT"))


def test_handle_key_in_some_rows_only() -> None:
    """A file whose first row has a handle key has one in all rows."""
    assert "row 2" in str(refused(row('"1"', '"a"', "1") + row('"a"', "1"), "TEXT", "INT"))


def test_handle_key_behind_rows_of_before_the_window() -> None:
    """Rows outside the commit range, which may be of another version, do not say whether there is a handle key."""
    data = row('"1"', "2", ts=TS) + row('"1"', '"a"', "1", ts=TS + 1)
    found = from_csv(data, "TEXT", "INT", options=HANDLE, commit_range=CommitRange(low=TS, high=TS + 1))
    assert found == [(2, TS + 1, INSERT, ("a", "1"), None)]


def _keyed(*kinds: str, listed: tuple[str, ...] = ()) -> RowLayout:
    """shop.orders with the primary key c0."""
    plain = layout(*kinds)
    columns = (replace(plain.columns[0], is_pk=True, nullable=False), *plain.columns[1:])
    return replace(plain, columns=columns, listed=listed or tuple(column.name for column in columns))


def _read(data: str, of: RowLayout, source: str = SOURCE, options: CsvOptions = HANDLE) -> list[tuple[str | None, ...]]:
    """The values of rows of such a table."""
    found = CsvDecoder(options).rows(file_read([data.encode()], of, source=source))
    return [values for _, _, _, values, _ in found]


@pytest.mark.parametrize("key", ["k1", "17", "-3", "{k1}", "{1, 2}"])
@pytest.mark.parametrize("quote", ['"', ""])
def test_handle_key_that_a_virtual_column_makes_up_for(key: str, quote: str) -> None:
    """A row with as many values as columns is refused where the first may be a handle key and a column may lack."""
    written = key if quote else key.replace(",", "\\,")
    fields = [f"{quote}{text}{quote}" for text in (written, "k1", "hello")]
    data = ",".join(f"{quote}{text}{quote}" for text in ("I", "orders", "shop")) + f",{TS}," + ",".join(fields) + "\r\n"
    with pytest.raises(UndecodableRow, match="--output-handle-key false"):
        _read(data, _keyed("VARCHAR", "VARCHAR", "VARCHAR"), options=replace(HANDLE, quote=quote))


@pytest.mark.parametrize("key", ["k1", "17", "{k}"])
def test_value_that_the_target_would_compute(key: str) -> None:
    """A row with one value too many is refused where it may be that of a column that only the target computes."""
    of = (
        _keyed("VARCHAR", "VARCHAR", listed=("c0", "c1", "c2"))
        if key != "{k}"
        else _keyed("JSON", "VARCHAR", listed=("c0", "c1", "c2"))
    )
    with pytest.raises(UndecodableRow, match="--output-handle-key false"):
        _read(row(f'"{key}"', '"a"', '"b"'), of)


def test_another_row_may_show_the_handle_key() -> None:
    """One row that cannot have been written the other way is enough for the whole file."""
    data = row('"17"', '"a"', '"b"') + row('"k2"', '"a"', '"b"')
    assert _read(data, _keyed("VARCHAR", "VARCHAR", "VARCHAR")) == [("17", "a", "b"), ("k2", "a", "b")]
    data = row('"17"', '"k1"', '"a"') + row('"{k2}"', '"k2"', '"b"')
    assert _read(data, _keyed("VARCHAR", "VARCHAR", listed=("c0", "c1", "c2"))) == [("k1", "a"), ("k2", "b")]


@pytest.mark.parametrize(
    ("fields", "kinds", "listed"),
    [
        (('"k1"', '"a"', '"b"'), ("VARCHAR", "VARCHAR", "VARCHAR"), ()),
        (("17", '"17"', '"b"'), ("INT", "VARCHAR", "VARCHAR"), ()),
        (('"17"', "1", '"b"'), ("VARCHAR", "INT", "VARCHAR"), ()),
        (("\\N", '"17"', '"b"'), ("VARCHAR", "VARCHAR", "VARCHAR"), ()),
    ],
)
def test_rows_without_handle_key_are_read(
    fields: tuple[str, ...], kinds: tuple[str, ...], listed: tuple[str, ...]
) -> None:
    """A first value that is no handle key, and values that fit no other column, show that none was written."""
    assert len(_read(row(*fields), _keyed(*kinds, listed=listed))[0]) == len(kinds)


@pytest.mark.parametrize(
    ("fields", "kinds", "listed"),
    [
        (('"17"', "17", '"b"'), ("INT", "VARCHAR"), ("c0", "c1", "v")),
        (('"17"', "17", '"b"'), ("INT", "VARCHAR"), ("v", "c0", "c1")),
        (('"{k1}"', '"k1"', '"b"'), ("VARCHAR", "VARCHAR"), ("c0", "c1", "v")),
        (('"{\x00K}"', '"k"', '"b"'), ("VARCHAR", "VARCHAR"), ("c0", "v", "c1")),
        (('"17"', '"k1"', '"b"'), ("VARCHAR", "VARCHAR"), ("c0", "c1", "_v$_i_0")),
    ],
)
def test_rows_with_handle_key_are_read(
    fields: tuple[str, ...], kinds: tuple[str, ...], listed: tuple[str, ...]
) -> None:
    """The handle key is passed over where it repeats the key, or where there is no virtual column that it could be."""
    assert len(_read(row(*fields), _keyed(*kinds, listed=listed))[0]) == len(kinds)


def test_files_of_the_new_architecture_have_no_handle_key() -> None:
    """A dispatcher in the file's name, and members of an ENUM, show that no handle key was written."""
    data, of = row('"17"', '"a"', '"b"'), _keyed("VARCHAR", "VARCHAR", "VARCHAR")
    assert _read(data, of, "s/t/1/CDC_1234_0000000001.csv") == [("17", "a", "b")]
    members = replace(of, columns=(*of.columns[:2], replace(of.columns[2], type="ENUM", elements=("b",))))
    assert _read(data, members) == [("17", "a", "b")]
    with pytest.raises(UndecodableRow, match="4 values"):
        _read(row('"17"', '"17"', '"a"', '"b"'), of, "s/t/1/CDC_1234_0000000001.csv")
