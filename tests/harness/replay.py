"""Replays a corpus into a server with the program's library entry, in one of four ways, and compares."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage_consumer import Consumer
from storage_consumer.summary import RoundSummary, TableSummary
from tests.harness.comparing import NOT_AT_SOURCE, Difference, differences
from tests.harness.corpora import Corpus, Cut
from tests.harness.expectations import (
    CHANGED_CONTENT,
    IRREPRODUCIBLE,
    can_be_equal,
    has_commit_ts,
    null_like,
    overwritten,
    overwritten_files,
    stated_halts,
    stays_though_dropped,
)
from tests.harness.servers import DatabaseServer, learn_zone
from tests.harness.structure_check import StructureCheck


class NotEqual(AssertionError):
    """The target is not as it should be; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A corpus, a bucket of its own, and the server that it goes to."""

    corpus: Corpus
    server: DatabaseServer
    folder: Path
    """Scratch."""
    structures: StructureCheck | None = None
    """Told to look at the structure as well."""
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Table → columns that are not compared, besides those of `IRREPRODUCIBLE`."""
    beside: frozenset[str] = frozenset()
    """Tables that the target has from elsewhere."""

    @property
    def bucket(self) -> Path:
        """Where the files of a cut appear."""
        return self.folder / "bucket"

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[Consumer]:
        """The program on this bucket and server; it is told to take rows without commit ts where there are such."""
        if not has_commit_ts(self.corpus):
            options["allow_missing_commit_ts"] = True
        with Consumer(
            upstream_uri=self.corpus.sink_uri(self.bucket),
            downstream_uri=self.server.uri,
            config=str(self.corpus.write_config(self.folder)),
            tz=self.corpus.timezone,
            **options,
        ) as consumer:
            yield consumer

    def round_to(self, cut: Cut, consumer: Consumer, *, rows_beyond: bool = False) -> RoundSummary:
        """One round, after which the target must be as the source was at `cut`.

        `rows_beyond`: the bucket holds rows of later cuts already; where rows have no commit ts, nothing tells them apart.
        """
        summary: RoundSummary = consumer.run_once()
        if can_be_equal(self.corpus, rows_beyond=rows_beyond):
            self.check(cut, summary)
        return summary

    def check(self, cut: Cut, summary: RoundSummary) -> None:
        """Raise `NotEqual` unless every table is equal; one that is halted for a stated reason is left out."""
        stated = stated_halts(self.corpus, self.server.kind)
        unstated = [table for table in summary.halted if not _is_stated(table, stated)]
        left_out = {table.table for table in summary.halted} | overwritten(self.corpus) | self.beside
        found: Sequence[Difference] = differences(
            self.server,
            self.corpus.golden(cut),
            time_zone="+00:00" if self.corpus.timezone == "UTC" else self.corpus.timezone,
            without={**IRREPRODUCIBLE.get(self.corpus.workload, {}), **self.without},
            null=null_like(self.corpus),
        )
        found = [one for one in found if one.what != NOT_AT_SOURCE or not stays_though_dropped(self.corpus, one.table)]
        lines = [f"halted: {_said(table)}" for table in unstated]
        lines += [str(one) for one in found if one.table not in left_out]
        if self.structures:
            halted = frozenset(table.table for table in summary.halted)
            lines += self.structures(self.corpus, self.server, cut, halted)
        if lines:
            raise NotEqual(f"{self.corpus} at cut {cut.number} ({cut.checkpoint_ts})\n" + "\n".join(lines))


def _is_stated(table: TableSummary, stated: Mapping[str, str]) -> bool:
    """Whether a halted table may be halted, and gives the reason why."""
    return table.table in stated and re.search(stated[table.table], table.error) is not None


def _said(table: TableSummary) -> str:
    return f"{table.table}: {table.error}"


def steps(replay: Replay) -> RoundSummary:
    """The files of each cut, then a round: the target equals the source at every cut."""
    summary, noticed = RoundSummary(), 0
    with replay.consumer() as consumer:
        for cut in replay.corpus.cuts:
            replay.corpus.materialise(cut, replay.bucket)
            summary = replay.round_to(cut, consumer)
            noticed += sum(count for reason, count in summary.skipped.items() if CHANGED_CONTENT in reason)
    changed = overwritten_files(replay.corpus)
    if noticed < len(changed):
        message = f"{replay.corpus}: files changed their content: {', '.join(changed)}; {noticed} were noticed"
        raise NotEqual(message)
    return summary


def whole(replay: Replay) -> RoundSummary:
    """Everything in one round, whose rows go through a shuffle however few they are."""
    last = replay.corpus.cuts[-1]
    replay.corpus.materialise(last, replay.bucket)
    with replay.consumer(partitions=3) as consumer:
        return replay.round_to(last, consumer)


def early(replay: Replay) -> RoundSummary:
    """All files are there, but ``metadata`` is that of a cut in the middle; then that of the last."""
    cuts = replay.corpus.cuts
    middle, last = cuts[(len(cuts) - 1) // 2], cuts[-1]
    replay.corpus.materialise(last, replay.bucket)
    replay.corpus.set_checkpoint(replay.bucket, middle)
    with replay.consumer() as consumer:
        replay.round_to(middle, consumer, rows_beyond=True)
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


def replayed(
    corpus: Corpus, mode: str, server: DatabaseServer, folder: Path, structures: StructureCheck | None = None
) -> RoundSummary:
    """Empty the server, replay `corpus` in one mode, and remove its bucket; raises `NotEqual` where it differs."""
    if structures:
        structures.learn(corpus, server)
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    folder.mkdir(parents=True)
    try:
        return MODES[mode](Replay(corpus=corpus, server=server, folder=folder, structures=structures))
    finally:
        shutil.rmtree(folder)
