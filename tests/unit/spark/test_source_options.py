"""Options of ``format("ticdc")``: what each means before the bucket is touched."""

from __future__ import annotations

import pytest

from storage_consumer.errors import ConfigError
from storage_consumer.spark.source.opening import source_options
from tests.harness.small_bucket import ts


def test_filters_that_spark_would_push() -> None:
    """Spark shares what one scan narrowed among all scans of one load, so the option is refused, with what to use instead."""
    for name in ("pushFilters", "pushfilters", "push_filters"):
        with pytest.raises(ConfigError, match=f"option {name}: .*startingVersion and endingVersion"):
            source_options({"path": "file:///b", "table": "d.a", name: "true"})


@pytest.mark.parametrize(
    ("name", "text"), [("delimiter", "\t"), ("terminator", "\n"), ("quote", " "), ("null", " "), ("null", "")]
)
def test_white_space_that_is_a_value(name: str, text: str) -> None:
    """What separates values, or stands for null, is taken as it is; all other values lose the white space around them."""
    found = source_options({"path": " file:///b ", "table": " d.a ", name: text, "tz": " UTC "})
    assert found.bucket == {name: text, "tz": "UTC"}
    assert (found.uri, str(found.table)) == ("file:///b", "d.a")


def test_an_end_that_is_a_time() -> None:
    """It includes its whole millisecond, as a start does, so a window from and to one time has what was committed then; a TSO is exact."""
    moment = "2026-09-21T14:13:22.000Z"
    for start, end in (("startingTimestamp", "endingTimestamp"), ("startingVersion", "endingVersion")):
        found = source_options({"path": "file:///b", start: moment, end: moment})
        assert (found.low, found.high) == (ts(2) - 1, ts(2) + (1 << 18) - 1)
    assert source_options({"path": "file:///b", "endingVersion": str(ts(2))}).high == ts(2)
