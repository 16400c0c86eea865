"""The program does with each recorded bucket what it did when that was last accepted."""

from __future__ import annotations

import pytest

from tests.campaigns.waves import digests, known
from tests.harness.corpora import FIXTURES, CorpusSource, available

QUICK = ("shop",)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=str(source), marks=() if source.workload in QUICK else pytest.mark.slow)
        for source in available(FIXTURES)
    ],
)
def test_same_waves(source: CorpusSource) -> None:
    """Jobs, statements and stored progress are those of before, on each kind of server, with and without restarts.

    If this is meant, look at what has changed (`python -m tests.campaigns waves --into FOLDER` at both commits), then `--accept` it.
    """
    assert digests(source) == known()[str(source)]
