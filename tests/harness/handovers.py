"""Handovers: a feed that begins with an export of one cut of a recording, and goes on with the rest of the recorded bucket."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from storage_consumer import Consumer
from storage_consumer.config.load import OF_DUMPLING
from storage_consumer.errors import ExportRefused
from storage_consumer.summary import RoundSummary
from tests.harness.corpora import Corpus, Cut
from tests.harness.dumps import Dump
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import DatabaseServer

_NOT_WHOLE = (
    "--where",
    "--no-data",
    "--no-schemas",
    "--filter",
    "-f",
    "--sql",
    "--output-filename-template",
    "--tables-list",
    "-T",
)
"""Options with which an export lacks something, or does not say what it has."""
_BY_THE_CLOCK: Mapping[str, Mapping[str, frozenset[str]]] = {
    "ddl_storm": dict.fromkeys(("storm.t", "storm.t_new", "storm.t_older"), frozenset({"e", "ts"})),
    "types": {"types_db.defs": frozenset({"c"})},
}
"""Workload → table → columns that hold the time of the run: the export and the recording are of two."""
_CUT = re.compile(r"-cut(\d+)$")


@dataclass(frozen=True, slots=True)
class Handover:
    """A recording, and an export of one of its cuts."""

    replay: Replay
    uri: str
    cut: int
    """Number of the cut, from 1."""
    start_ts: int = 1
    """As of when the changefeed began."""

    @contextmanager
    def consumer(self) -> Iterator[Consumer]:
        """The program, which is given the export."""
        with self.replay.consumer(dump=self.uri, start_ts=self.start_ts) as consumer:
            yield consumer

    def goes_on(self) -> None:
        """Round by round the target is as the source was at each cut from the export's on."""
        with self.consumer() as consumer:
            for cut in self._later_cuts:
                self._round_to(cut, consumer)

    def starts_anew(self) -> Counter[str]:
        """So it is where each cut is another program's; return how many tables are halted in the end, by the error's words."""
        errors: list[str] = []
        for cut in self._later_cuts:
            with self.consumer() as consumer:
                errors = [table.error for table in self._round_to(cut, consumer).halted]
        return Counter(map(_without_facts, errors))

    @property
    def _later_cuts(self) -> tuple[Cut, ...]:
        return self.replay.corpus.cuts[self.cut - 1 :]

    def _round_to(self, cut: Cut, consumer: Consumer) -> RoundSummary:
        corpus = self.replay.corpus
        corpus.materialise(cut, self.replay.bucket)
        summary = self.replay.round_to(cut, consumer)
        waits = [f"{table.table} waits for {table.waits_for}" for table in summary.tables if table.waits_for]
        if (summary.checkpoint != cut.checkpoint_ts or waits) and not summary.halted:
            raise NotEqual(f"{corpus} at cut {cut.number}: the checkpoint is {summary.checkpoint}, {waits}, {summary}")
        return summary


def _without_facts(error: str) -> str:
    """An error without what is this case's alone."""
    return re.sub(r"\S*/\S*|`[^`]*`|'[^']*'|\d+", "…", error.partition("Next steps")[0])[:200]


def export_uri(folder: Path, dump: Dump) -> str:
    """The URI of an export, with what whoever exported knows of it."""
    said = {
        name.removeprefix("--"): value or ("" if name.startswith("--csv") else "true") for name, value in dump.command
    }
    parameters = {name: value for name, value in said.items() if name in OF_DUMPLING} | {
        "time-zone": dump.zone or "UTC"
    }
    return f"{folder.as_uri()}?" + "&".join(f"{name}={quote(value, safe='+:/')}" for name, value in parameters.items())


def cut_of(dump: Dump, corpus: Corpus) -> int:
    """The number of the cut that an export is of: what its name says, else the last."""
    found = _CUT.search(dump.folder.name)
    return int(found[1]) if found else len(corpus.cuts)


def is_whole(dump: Dump) -> bool:
    """Whether an export holds all tables of its workload and says as of when."""
    if dump.about["exit"] or dump.has_option(*_NOT_WHOLE):
        return False
    try:
        return bool(dump.read().snapshot)
    except ExportRefused:
        return False


def prepared(dump: Dump, corpus: Corpus, folder: Path, *, views: bool = True) -> tuple[str, int]:
    """Copy an export into a folder, as of the recording's own cut; its URI and the number of the cut.

    The export is of another run of the same workload, so its snapshot has another TSO. `views`: with those that it holds.
    """
    number = cut_of(dump, corpus)
    # All files get the time of now, as that which is written below has it: an older one would be another export's.
    shutil.copytree(dump.folder / "dump", folder, copy_function=shutil.copyfile)
    for path in () if views else views_in(folder):
        path.unlink()
        path.with_name(path.name.replace("-schema-view.", "-schema.")).unlink()
    metadata = folder / "metadata"
    pos = f"Pos: {corpus.cuts[number - 1].checkpoint_ts}"
    metadata.write_text(re.sub(r"Pos: \S+", pos, metadata.read_text(encoding="utf-8")), encoding="utf-8")
    return export_uri(folder, dump), number


def views_in(folder: Path) -> list[Path]:
    """The files that make views, each of which has one beside it that reserves the view's name."""
    return list(folder.glob("*-schema-view.*"))


def begun(dump: Dump, corpus: Corpus, server: DatabaseServer, folder: Path, *, views: bool = True) -> Handover:
    """A handover whose files are all in `folder`, with an empty bucket."""
    uri, cut = prepared(dump, corpus, folder / "export", views=views)
    (folder / "replay").mkdir()
    without = _BY_THE_CLOCK.get(corpus.workload, {})
    # Classic TiCDC replicates no table without a key unless it is told to, and an export has them all.
    replicated = {f"{table.schema}.{table.table}" for each in corpus.cuts for table in corpus.golden(each)}
    beside = frozenset(str(table.name) for table in dump.read().tables) - replicated
    replay = Replay(corpus=corpus, server=server, folder=folder / "replay", without=without, beside=beside)
    return Handover(replay, uri, cut)


def of_workload(dumps: Sequence[Dump], workload: str) -> list[Dump]:
    """The whole exports of a workload."""
    return [dump for dump in dumps if dump.folder.parent.name == workload and is_whole(dump)]
