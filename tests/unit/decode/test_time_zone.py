"""TIMESTAMP values of a zone that servers may not know by name, and the session zones that go with them."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config.settings import DumpOptions, Upstream
from storage_consumer.decode.decoder import RowLayout, zones
from storage_consumer.decode.values import converted_zone, offset_at, session_zone, to_session, utc_of, zone_caveat
from storage_consumer.model import TableColumn, TableName
from tests.unit.decode.encoders import TS, Row, canal_line, canal_message, csv_row, from_canal, from_csv

JANUARY, JULY = 1_704_067_200_000, 1_719_792_000_000
"""2024-01-01 and 2024-07-01, in milliseconds."""


@pytest.mark.parametrize(
    ("zone", "session", "converted"),
    [
        ("", "+00:00", ""),
        ("UTC", "+00:00", ""),
        ("Etc/UTC", "+00:00", ""),
        ("+08:00", "+08:00", ""),
        ("-12:59", "-12:59", ""),
        ("+14:00", "+00:00", "+14:00"),
        ("Asia/Shanghai", "+00:00", "Asia/Shanghai"),
    ],
)
def test_who_converts(zone: str, session: str, converted: str) -> None:
    """An offset that every server knows is the session's zone; what else is not UTC is converted while decoding (T5)."""
    assert session_zone(zone) == session
    assert converted_zone(zone) == converted


@pytest.mark.parametrize(
    ("zone", "moment", "offset"),
    [
        ("Europe/Berlin", JANUARY, "+01:00"),
        ("Europe/Berlin", JULY, "+02:00"),
        ("America/St_Johns", JANUARY, "-03:30"),
        ("America/St_Johns", JULY, "-02:30"),
        ("Pacific/Kiritimati", JULY, "+14:00"),
        ("+05:30", JULY, "+05:30"),
        ("UTC", JULY, "+00:00"),
        ("", JULY, "+00:00"),
    ],
)
def test_offset_at(zone: str, moment: int, offset: str) -> None:
    """A DDL gets the offset that was in force when it ran."""
    assert offset_at(zone, moment) == offset


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Asia/Shanghai", "2024-01-31 07:30:00", "2024-01-30 23:30:00"),
        ("Asia/Shanghai", "2024-01-31 07:30:00.000001", "2024-01-30 23:30:00.000001"),
        ("Asia/Shanghai", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("Asia/Shanghai", "0000-00-00 00:00:00.000", "0000-00-00 00:00:00.000"),
        ("Asia/Shanghai", "1986-05-04 03:00:00", "1986-05-03 18:00:00"),
        ("Europe/Berlin", "2024-07-01 00:00:00", "2024-06-30 22:00:00"),
        ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27 00:30:00"),
        ("Australia/Lord_Howe", "2024-01-01 00:00:00", "2023-12-31 13:00:00"),
        ("Africa/Monrovia", "1971-06-01 00:00:00", "1971-06-01 00:44:30"),
        ("+14:00", "2024-01-31 07:30:00", "2024-01-30 17:30:00"),
        ("-13:30", "2024-01-31 12:00:00", "2024-02-01 01:30:00"),
    ],
)
def test_utc_of(zone: str, text: str, expected: str) -> None:
    """Summer time and offsets with seconds count, zero dates stay, and of two equal wall-clock times the first is meant."""
    assert utc_of(zone, text) == expected


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("2024-10-27 01:59:59.999999", False),
        ("2024-10-27 02:00:00", True),
        ("2024-10-27 02:59:59.999999", True),
        ("2024-10-27 03:00:00", False),
        ("0000-00-00 00:00:00", False),
    ],
)
def test_rows_that_are_told_apart_by_it(text: str, is_told: bool) -> None:  # noqa: FBT001 - a column of the table
    """A time that occurred twice, to the second, is an error where rows are told apart by it."""
    for session in ("+00:00", "+05:30"):
        convert = to_session("Europe/Berlin", session, tells_rows=True)
        if is_told:
            with pytest.raises(ValueError, match="occurred twice in Europe/Berlin"):
                convert(text)
        else:
            assert convert(text) == to_session("Europe/Berlin", session)(text)


@pytest.mark.parametrize(
    "text",
    ["", "2024-01-31", "2024-01-31T00:00:00", "2024-01-31 00:00:00Z", "2024-00-10 00:00:00", "٢024-01-31 00:00:00"],
)
def test_no_moment(text: str) -> None:
    """What is no date and time stops the table."""
    with pytest.raises(ValueError, match=r"date and time|month|invalid"):
        utc_of("Asia/Shanghai", text)


def test_out_of_the_calendar() -> None:
    """A date that has no place in UTC stops the table, with our own error."""
    with pytest.raises(ValueError, match="calendar"):
        utc_of("Asia/Shanghai", "0001-01-01 00:00:00")


@given(
    st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 18)),  # noqa: DTZ001 - in UTC, as the next line says
    st.sampled_from(["Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]),
)
def test_back_and_forth(moment: dt.datetime, zone: str) -> None:
    """A moment shown in a zone comes back, but for the hour that the clocks go back."""
    local = moment.replace(tzinfo=dt.UTC).astimezone(zoneinfo.ZoneInfo(zone))
    text = local.replace(tzinfo=None, fold=0).isoformat(" ")
    first = local.replace(fold=0).astimezone(dt.UTC).replace(tzinfo=None)
    assert to_session(zone, "+00:00")(text) == first.isoformat(" ")
    assert local.fold or first == moment


def test_both_decoders() -> None:
    """Both protocols convert TIMESTAMP values and nothing else; NULL stays."""
    kinds = ("TIMESTAMP", "DATETIME", "TIMESTAMP")
    row = Row(operation="I", values=("2024-01-31 08:00:00", "2024-01-31 08:00:00", None), ts=TS)
    expected = ("2024-01-31 00:00:00", "2024-01-31 08:00:00", None)
    assert from_csv(csv_row(kinds, row), *kinds, zone="Asia/Shanghai")[0][3] == expected
    assert from_canal(canal_line(canal_message(kinds, row)), *kinds, zone="Asia/Shanghai")[0][3] == expected


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("Europe/Berlin", True),
        ("America/New_York", True),
        ("Asia/Shanghai", False),
        ("UTC", False),
        ("+02:00", False),
        ("", False),
    ],
)
def test_caveat(zone: str, told: bool) -> None:  # noqa: FBT001 - a column of the table
    """A zone in which an hour occurs twice is warned of, and no other one."""
    assert bool(zone_caveat(zone)) is told


@pytest.mark.parametrize(
    ("bucket", "export", "zones_of_rows", "text"),
    [
        ("UTC", "UTC", ("", "+00:00"), "2024-01-01 10:00:00.5"),
        ("UTC", "+00:00", ("", "+00:00"), "2024-01-01 10:00:00.5"),
        ("+08:00", "+08:00", ("", "+08:00"), "2024-01-01 10:00:00.5"),
        ("UTC", "+08:00", ("+08:00", "+00:00"), "2024-01-01 02:00:00.5"),
        ("Asia/Shanghai", "+08:00", ("+08:00", "+00:00"), "2024-01-01 02:00:00.5"),
        ("+08:00", "UTC", ("UTC", "+08:00"), "2024-01-01 18:00:00.5"),
        ("+05:30", "America/New_York", ("America/New_York", "+05:30"), "2024-01-01 20:30:00.5"),
        ("-12:30", "+14:00", ("+14:00", "-12:30"), "2023-12-31 07:30:00.5"),
    ],
)
def test_an_export_in_another_zone_than_the_bucket(
    bucket: str, export: str, zones_of_rows: tuple[str, str], text: str
) -> None:
    """The session is in the bucket's zone, so an export's times become those, whatever zone they are in; a zero date is one in each."""
    upstream = Upstream(
        scheme="file", root="/e", protocol="dump-sql", time_zone=export, dump=DumpOptions(bucket_time_zone=bucket)
    )
    assert zones(upstream) == zones_of_rows
    zone, session = zones_of_rows
    column = TableColumn(name="at", type="TIMESTAMP")
    layout = RowLayout(table=TableName(schema="s", table="t"), columns=(column,), zone=zone, session=session)
    found = layout.converter(0, "csv")
    given_text, zero = "2024-01-01 10:00:00.5", "0000-00-00 00:00:00"
    assert (found(given_text) if found else given_text) == text
    assert (found(zero) if found else zero) == zero
