"""Replays a corpus into a server with the program's library entry, in one of four ways, and compares."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage_consumer import Consumer
from storage_consumer.summary import RoundSummary, TableSummary
from tests.comparing import differences
from tests.corpora import Corpus, Cut
from tests.servers import DatabaseServer

NO_OLD_IMAGE = "an UPDATE of a table without a key carries no old image, so nothing says which row changes"
STATED_HALTS: Mapping[str, Mapping[str, str]] = {
    "keyless__csv": {
        "keyless.nk": NO_OLD_IMAGE,
        "keyless.nkf": NO_OLD_IMAGE,
        "keyless.nklate": NO_OLD_IMAGE,
    },
    "keys__csv": {"keysdb.uknull": NO_OLD_IMAGE},
    "generated__csv": {"gen.ukg": NO_OLD_IMAGE},
}
"""WORKLOAD__VARIANT → table → why no consumer can follow it from these files: TiCDC's output-old-value is off."""


class NotEqual(AssertionError):
    """The target is not as it should be; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A corpus, a bucket of its own, and the server that it goes to."""

    corpus: Corpus
    server: DatabaseServer
    folder: Path
    """Scratch."""

    @property
    def bucket(self) -> Path:
        """Where the files of a cut appear."""
        return self.folder / "bucket"

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[Consumer]:
        """The program on this bucket and server."""
        with Consumer(
            upstream_uri=self.corpus.sink_uri(self.bucket),
            downstream_uri=self.server.uri,
            config=str(self.corpus.write_config(self.folder)),
            tz=self.corpus.timezone,
            **options,
        ) as consumer:
            yield consumer

    def round_to(self, cut: Cut, consumer: Consumer) -> RoundSummary:
        """One round, after which the target must be as the source was at `cut`."""
        summary: RoundSummary = consumer.run_once()
        self.check(cut, summary)
        return summary

    def check(self, cut: Cut, summary: RoundSummary) -> None:
        """Raise `NotEqual` unless every table is equal; one that is halted for a stated reason is left out."""
        stated = STATED_HALTS.get(f"{self.corpus.workload}__{self.corpus.variant}", {})
        halted = [table for table in summary.halted if table.table not in stated]
        left_out = {table.table for table in summary.halted} & stated.keys()
        found = [one for one in differences(self.server, self.corpus.golden(cut)) if one.table not in left_out]
        if halted or found:
            lines = [f"halted: {_said(table)}" for table in halted] + [str(one) for one in found]
            raise NotEqual(f"{self.corpus} at cut {cut.number} ({cut.checkpoint_ts})\n" + "\n".join(lines))


def _said(table: TableSummary) -> str:
    return f"{table.table}: {table.error}"


def steps(replay: Replay) -> RoundSummary:
    """The files of each cut, then a round: the target equals the source at every cut."""
    summary = RoundSummary()
    with replay.consumer() as consumer:
        for cut in replay.corpus.cuts:
            replay.corpus.materialise(cut, replay.bucket)
            summary = replay.round_to(cut, consumer)
    return summary


def whole(replay: Replay) -> RoundSummary:
    """Everything at once, in one round."""
    last = replay.corpus.cuts[-1]
    replay.corpus.materialise(last, replay.bucket)
    with replay.consumer() as consumer:
        return replay.round_to(last, consumer)


def early(replay: Replay) -> RoundSummary:
    """All files are there, but ``metadata`` is that of a cut in the middle; then that of the last."""
    cuts = replay.corpus.cuts
    middle, last = cuts[(len(cuts) - 1) // 2], cuts[-1]
    replay.corpus.materialise(last, replay.bucket)
    replay.corpus.set_checkpoint(replay.bucket, middle)
    with replay.consumer() as consumer:
        replay.round_to(middle, consumer)
        replay.corpus.set_checkpoint(replay.bucket, last)
        return replay.round_to(last, consumer)


def again(replay: Replay) -> RoundSummary:
    """A second program over a finished bucket writes no row, runs no DDL and changes nothing."""
    whole(replay)
    with replay.consumer() as consumer:
        summary = replay.round_to(replay.corpus.cuts[-1], consumer)
    if summary.written or summary.ddls:
        raise NotEqual(f"{replay.corpus}: the second run wrote {summary.written} rows and ran {summary.ddls} DDL")
    return summary


MODES: Mapping[str, Callable[[Replay], RoundSummary]] = {"steps": steps, "whole": whole, "early": early, "again": again}


def replayed(corpus: Corpus, mode: str, server: DatabaseServer, folder: Path) -> RoundSummary:
    """Empty the server, replay `corpus` in one mode, and remove its bucket; raises `NotEqual` where it differs."""
    server.drop_all()
    folder.mkdir(parents=True)
    try:
        return MODES[mode](Replay(corpus=corpus, server=server, folder=folder))
    finally:
        shutil.rmtree(folder)
