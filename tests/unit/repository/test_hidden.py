"""What is found out about recorded buckets is what TiCDC was told, or is named as missing."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest

from storage_consumer.bucket.inspector import InspectedBucket, inspect
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.load import load
from storage_consumer.config.settings import Upstream
from tests.harness.corpora import FIXTURES, THOROUGH, Corpus, CorpusSource, available


def truth(corpus: Corpus) -> Upstream:
    """The settings as TiCDC had them."""
    told = {"upstream_uri": corpus.sink_uri(corpus.folder), "config": tomllib.loads(corpus.changefeed_toml)}
    return load({**told, "allow_missing_commit_ts": True}, {}, target=False).config.upstream


def looked_at(corpus: Corpus) -> InspectedBucket:
    """What the program finds out about the recording after its last cut, from its URI alone."""
    root = corpus.folder / "tree"
    hidden = load({"upstream_uri": root.resolve().as_uri(), "allow_missing_commit_ts": True}, {}, target=False)
    return inspect(LocalStorage(str(root)), hidden.config.upstream, hidden.origins, time.time())


def mistakes(corpus: Corpus, bucket: InspectedBucket) -> list[str]:
    """Inferred settings that are not what TiCDC was told. What no file shows yet is none."""
    real, found = truth(corpus), bucket.upstream
    wrong = []
    for each in bucket.settings:
        if each.state != "inferred" or each.value is None:
            continue
        expected = {
            "protocol": real.protocol,
            "enable_tidb_extension": real.enable_tidb_extension,
            "date_separator": real.date_separator or "day",
            "enable_partition_separator": real.partition_separator is not False,
            "binary_encoding_method": real.csv.binary_encoding_method if found.csv.binary_encoding_method else "",
            # The new architecture takes this setting and writes no such field.
            "output_handle_key": real.csv.output_handle_key and corpus.arch == "classic",
        }
        value = expected[each.keyword] if each.keyword in expected else getattr(real.csv, each.keyword)
        if each.value != value:
            wrong.append(f"{each.name} is {each.value!r}, but TiCDC had {value!r}")
    return wrong


RECORDINGS = [source for source in (available() if THOROUGH else available(FIXTURES)) if source.arch]


@pytest.mark.parametrize("source", RECORDINGS, ids=str)
def test_inferred_settings_are_right(source: CorpusSource, tmp_path: Path) -> None:
    """From the URI alone every setting is inferred rightly or named; only few are left to be named, and none is called foreign."""
    corpus = source.open(tmp_path)
    bucket = looked_at(corpus)
    assert not bucket.foreign
    assert mistakes(corpus, bucket) == []
    assert {each.name for each in bucket.missing} <= {"tz", "null"}
