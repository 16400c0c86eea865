"""The decoders' benchmark reads what it writes."""

from __future__ import annotations

import pytest

from tests.benchmarks.decoders import SUBJECTS, main


def test_prints_a_ratio_for_each_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    """Each protocol has a line with both readers' pace and how they compare."""
    assert main(["--rows", "200", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SUBJECTS)
    assert all(line.count("MB/s") == 2 and "times as long" in line for line in lines)
