"""Recordings of which only the URI is told: what the program finds out, held against what TiCDC was told."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_consumer import Consumer
from storage_consumer.bucket.inspector import InspectedBucket, inspect
from storage_consumer.bucket.stores.local import LocalStorage
from storage_consumer.config.load import load
from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError
from tests.harness.corpora import Corpus
from tests.harness.expectations import has_commit_ts
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import DatabaseServer, learn_zone

_FLAG = re.compile(r"--([a-z-]+) \(")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenReplay(Replay):
    """A replay for which nothing is told but the URI, and the time zone if any."""

    tz: str | None = None

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[Consumer]:
        """The program on this bucket and server."""
        with Consumer(
            upstream_uri=self.bucket.resolve().as_uri(),
            downstream_uri=self.server.uri,
            tz=self.tz,
            allow_missing_commit_ts=not has_commit_ts(self.corpus),
            **options,
        ) as consumer:
            yield consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a recording."""

    kind: str
    """``inferred``: equal; ``refused``: a setting was named; ``wrong``: anything else."""
    by: tuple[str, ...] = ()
    """The settings named."""
    problem: str = ""


def replayed_hidden(corpus: Corpus, server: DatabaseServer, folder: Path) -> Outcome:
    """Replay a recording in one round, told nothing; where tables halt for the time zone only, once more with it."""
    replay = HiddenReplay(corpus=corpus, server=server, folder=folder)
    last = corpus.cuts[-1]
    corpus.materialise(last, replay.bucket)
    named: tuple[str, ...] = ()
    for tz in (None, corpus.timezone):
        server.drop_all()
        learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
        attempt = HiddenReplay(corpus=corpus, server=server, folder=folder, tz=tz)
        try:
            with attempt.consumer() as consumer:
                summary = consumer.run_once()
        except ConfigError as error:
            return Outcome(kind="refused", by=(*named, *_FLAG.findall(str(error))), problem=str(error))
        if tz is None and any("--tz" in table.error for table in summary.halted):
            named = ("tz",)
            continue
        try:
            attempt.check(last, summary)
        except NotEqual as error:
            return Outcome(kind="wrong", by=named, problem=str(error))
        break
    return Outcome(kind="inferred", by=named)
