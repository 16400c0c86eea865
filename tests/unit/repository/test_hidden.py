"""What is found out about recorded buckets is what TiCDC was told, or is named as missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.corpora import FIXTURES, THOROUGH, CorpusSource, available
from tests.harness.hidden import looked_at, mistakes

RECORDINGS = [source for source in (available() if THOROUGH else available(FIXTURES)) if source.arch]


@pytest.mark.parametrize("source", RECORDINGS, ids=str)
def test_inferred_settings_are_right(source: CorpusSource, tmp_path: Path) -> None:
    """From the URI alone every setting is inferred rightly or named; only few are left to be named, and none is called foreign."""
    corpus = source.open(tmp_path)
    bucket = looked_at(corpus)
    assert not bucket.foreign
    assert mistakes(corpus, bucket) == []
    assert {each.name for each in bucket.missing} <= {"tz", "null"}
