"""The command `tso`: TSO and time, both ways."""

from __future__ import annotations

import json
import time

import pytest

from storage_consumer.cli.endings import ExitCode
from storage_consumer.cli.main import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints; it ends well."""
    assert main(["tso", *words]) == ExitCode.DONE
    return capsys.readouterr().out


def test_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    """A TSO becomes a time, and a time a TSO; each line shows both, the logical part, and the time in the zone of --tz."""
    lines = told(capsys, "470607624365932545", "2026-11-23T10:00:00.123Z", "--tz", "+08:00").splitlines()
    assert lines == [
        "470607624365932545  2026-11-21T01:46:57.851Z  2026-11-21T09:46:57.851+08:00  logical 1",
        "470660677664243712  2026-11-23T10:00:00.123Z  2026-11-23T18:00:00.123+08:00  logical 0",
    ]


def test_now(capsys: pytest.CaptureFixture[str]) -> None:
    """Without words it is now, as with the word `now`."""
    for words in ((), ("now",)):
        before = int(time.time() * 1000)
        (found,) = json.loads(told(capsys, *words, "--json"))["instants"]
        assert before <= found["physical_ms"] <= time.time() * 1000


def test_a_named_zone(capsys: pytest.CaptureFixture[str]) -> None:
    """A zone by name goes by the time of year."""
    words = ("2026-07-01T00:00:00Z", "2026-12-01T00:00:00Z", "--tz", "Europe/Berlin", "--json")
    found = json.loads(told(capsys, *words))["instants"]
    assert [each["local"] for each in found] == ["2026-07-01T02:00:00.000+02:00", "2026-12-01T01:00:00.000+01:00"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["2026-11-23T10:00:00"], "no time zone"),
        (["x"], "a TSO or a time with its zone"),
        ([str(2**64)], "64 bits"),
        (["1700000000"], "no TSO of a TiDB"),
        (["now", "--tz", "CEST"], "--tz: a time zone like"),
        (["now", "--tz", "System"], "name the zone"),
    ],
)
def test_what_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said in a line, with code 2."""
    assert main(["tso", *words]) == ExitCode.MISCONFIGURED
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert message in shown.err
