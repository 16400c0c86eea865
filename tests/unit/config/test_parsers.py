"""Texts to values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.config import parsers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2.0),
        ("1h30m", 5400.0),
        ("100ms", 0.1),
        ("1.5h", 5400.0),
        ("0", 0.0),
        ("2m0.5s", 120.5),
        (3, 3.0),
        (0.5, 0.5),
    ],
)
def test_durations_are_written_as_in_go(text: object, seconds: float) -> None:
    """A duration is a sum of numbers with units; a bare number counts seconds."""
    assert parsers.seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "2", "2 s", "s", "-1s", "1h-3m", "1d", "two", True, -1, float("inf"), None])
def test_other_durations_are_refused(text: object) -> None:
    """A number without unit in a text, an unknown unit, a negative or endless span is no duration."""
    with pytest.raises(ValueError, match="duration"):
        parsers.seconds_of(text)


def test_a_duration_below_its_least_value_is_refused() -> None:
    """A poll interval of nothing would be a busy loop."""
    with pytest.raises(ValueError, match=r"at least 0\.1s"):
        parsers.duration(low=0.1)("0")


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Shanghai", "Europe/Berlin", "+08:00", "-05:30", "+14:00", "-13:59", "+00:00"]
)
def test_zones_are_taken_by_name_or_offset(zone: str) -> None:
    """An IANA name or an offset stays as it is."""
    assert parsers.time_zone(zone) == zone


def test_an_offset_gets_two_digits_for_its_hours() -> None:
    """``+8:00`` is what servers write as ``+08:00``."""
    assert parsers.time_zone("+8:00") == "+08:00"


@pytest.mark.parametrize(
    "zone",
    [
        *("+25:00", "-14:00", "+08:60", "+0800", "", "../etc/passwd", "/etc/localtime"),
        *("Mars/Base", "Europe", "localtime", "posixrules", "right/UTC", "Factory"),
    ],
)
def test_what_is_no_zone_is_refused(zone: str) -> None:
    """A zone that the host's database lacks, a path or an impossible offset is an error."""
    with pytest.raises(ValueError, match="time zone"):
        parsers.time_zone(zone)


@pytest.mark.parametrize("word", ["CST", "cst", "IST", "CEST"])
def test_an_abbreviation_is_no_zone(word: str) -> None:
    """Several zones may share it, and no zone that only looks alike is proposed."""
    with pytest.raises(ValueError, match=r"an abbreviation does not identify a zone$"):
        parsers.time_zone(word)


def test_a_misspelt_zone_gets_its_nearest_name() -> None:
    """The message names the zone that was probably meant."""
    with pytest.raises(ValueError, match="did you mean `Asia/Shanghai`"):
        parsers.time_zone("Asia/Shangai")


def test_the_systems_zone_is_found_by_name(tmp_path: Path) -> None:
    """TZ beats /etc/timezone, which beats the target of /etc/localtime; a host with none of these runs in UTC."""
    assert parsers.system_zone({}, tmp_path) == "UTC"
    (tmp_path / "zoneinfo" / "Europe").mkdir(parents=True)
    (tmp_path / "zoneinfo" / "Europe" / "Paris").touch()
    (tmp_path / "localtime").symlink_to(tmp_path / "zoneinfo" / "Europe" / "Paris")
    assert parsers.system_zone({}, tmp_path) == "Europe/Paris"
    (tmp_path / "timezone").write_text("Asia/Tokyo\n")
    assert parsers.system_zone({}, tmp_path) == "Asia/Tokyo"
    assert parsers.system_zone({"TZ": ":Asia/Shanghai"}, tmp_path) == "Asia/Shanghai"


def test_a_nameless_system_zone_is_an_error(tmp_path: Path) -> None:
    """A copied /etc/localtime has no name, and guessing one would shift every TIMESTAMP."""
    (tmp_path / "localtime").write_bytes(b"TZif")
    with pytest.raises(ValueError, match="--tz"):
        parsers.system_zone({}, tmp_path)


@pytest.mark.parametrize(("word", "value"), [("true", True), ("T", True), ("1", True), ("off", False), (False, False)])
def test_booleans_have_several_words(word: object, value: bool) -> None:  # noqa: FBT001 - the expected value
    """True and false are taken as Go and people write them."""
    assert parsers.boolean(word) is value


@pytest.mark.parametrize("word", ["", "maybe", 2, None, "truee"])
def test_other_words_are_no_boolean(word: object) -> None:
    """What is neither true nor false is an error, never false."""
    with pytest.raises(ValueError, match="true or false"):
        parsers.boolean(word)


@pytest.mark.parametrize("value", ["", "-1", "6", "1.0", True, "0x2", "\uff11\uff12"])
def test_integers_keep_their_limits(value: object) -> None:
    """Only whole numbers inside the limits are taken."""
    with pytest.raises(ValueError, match="whole number from 0 to 5"):
        parsers.integer(low=0, high=5)(value)


@pytest.mark.parametrize("name", ["mysql", "INFORMATION_SCHEMA", "a`b", "", "a" * 65, "a-b"])
def test_state_schemas_are_plain_names_of_our_own(name: str) -> None:
    """A name that would need quoting, or one of the server's schemas, is refused."""
    with pytest.raises(ValueError, match="schema name"):
        parsers.schema_name(name)


@pytest.mark.parametrize(
    "master", ["", "local", "local[*]", "local[2,3]", "spark://h:7077", "yarn", "k8s://https://h:6443"]
)
def test_spark_masters_are_taken(master: str) -> None:
    """What spark-submit takes as master is taken."""
    assert parsers.spark_master(master) == master


@pytest.mark.parametrize("master", ["locl[*]", "h:7077", "local[]"])
def test_other_spark_masters_are_refused(master: str) -> None:
    """A misspelt master is told at once, not by a JVM."""
    with pytest.raises(ValueError, match="Spark master"):
        parsers.spark_master(master)


def test_texts_have_no_control_characters() -> None:
    """A newline in a setting is a mistake of quoting."""
    with pytest.raises(ValueError, match="control"):
        parsers.text("a\nb")
    with pytest.raises(ValueError, match="text"):
        parsers.text(3)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.binary()))
def test_no_value_makes_a_parser_fail_otherwise(value: object) -> None:
    """Whatever is given, a parser gives a value or raises ValueError."""
    every = (
        *(parsers.text, parsers.boolean, parsers.seconds_of, parsers.time_zone, parsers.schema_name, parsers.path),
        *(parsers.spark_master, parsers.integer(low=0, high=9), parsers.choice("a", "b"), parsers.config_paths),
    )
    for parse in every:
        try:
            parse(value)
        except ValueError as error:
            assert str(error)  # noqa: PT017 - either outcome is right
