"""What the program does with each recorded bucket, held against what it did before: waves, statements, stored progress.

``python -m tests.campaigns waves`` compares all buckets with ``waves.tsv``, which has a digest for each bucket, way and kind of server.
``--into FOLDER`` writes the texts behind the digests: run it at two commits, and ``diff -r`` shows what is different. ``--accept``
writes the digests anew, for a change that is meant.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from storage_consumer.bucket.inspector import completed, inspect
from storage_consumer.bucket.reader import StorageReader
from storage_consumer.config.load import Loaded, load
from storage_consumer.config.settings import Config
from storage_consumer.driver.ddl_workers import DdlWorkers
from storage_consumer.driver.ledger import RoundContext
from storage_consumer.driver.service import ConsumerService
from storage_consumer.model import TableColumn, TableName
from storage_consumer.plan.journal_entry import DdlAnswer
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.steps import DdlStep
from storage_consumer.ports import DdlContext, TableProgress
from storage_consumer.rows.fitting import TargetColumn, TargetTable, UniqueKey
from storage_consumer.rows.halves import PlaceOf
from storage_consumer.rows.row_keys import Action, Run
from storage_consumer.rows.row_order import Changes
from storage_consumer.rows.spec import FileReport, JobFile, JobSpec, TablePlan, WriteReport, Written
from storage_consumer.summary import Progress, Silent
from storage_consumer.target.ddl.runner import DdlRunner
from tests.harness.corpora import METADATA, Corpus, CorpusSource, Cut, available, root
from tests.harness.expectations import has_commit_ts
from tests.harness.twins.records import TargetRecords
from tests.harness.twins.state import MemoryState
from tests.harness.twins.storage import MemoryPipeline, MemoryStorage, in_place
from tests.harness.twins.target import FACTS, MemoryTarget
from tests.harness.twins.writer import by_commit_ts
from tests.unit.driving import PatientClock, Stop

WAYS = ("steps", "whole", "restarts")
"""One process sees the bucket grow cut by cut; or all of it in one round; or each cut is met by a new process."""
_BUCKET = Path("/bucket")
_HIDDEN = "_V$_"
_NOW = 1_800_000_000.0
"""Seconds since 1970-01-01 UTC, after all recordings."""
_NAME = r"((?:`(?:[^`]|``)*`|[\w$]+)(?:\s*\.\s*(?:`(?:[^`]|``)*`|[\w$]+))?)"
_DROP_DATABASE = re.compile(r"DROP\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+(?:TABLE|VIEW)\b", re.IGNORECASE)
_RENAME = re.compile(rf"RENAME\s+TABLE\s+{_NAME}\s+TO\b", re.IGNORECASE)
_ALTER_RENAME = re.compile(
    rf"ALTER\s+TABLE\s+{_NAME}\s.*\bRENAME\s+(?:TO\s+|AS\s+|=\s*)?{_NAME}\s*$", re.IGNORECASE | re.DOTALL
)
_CREATE_DATABASE = re.compile(rf"CREATE\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE)


def trace(corpus: Corpus, way: str, scratch: Path, server_type: str = "mysql") -> str:
    """Return what the program does with a bucket, one line for each thing; `way` is one of `WAYS`."""
    cuts = corpus.cuts[-1:] if way == "whole" else corpus.cuts
    world = _World(_settings(corpus, scratch), _generated(corpus), server_type)
    service: ConsumerService | None = None
    for cut in cuts:
        world.show(corpus, cut)
        if service is None or way == "restarts":
            service = world.process()
        world.lines.append(f"== cut {cut.number} at {cut.checkpoint_ts}")
        try:
            world.round_ended(service.run_once(Stop()))
        except Exception as fault:  # noqa: BLE001 - whatever stops the program is what it did
            world.lines.append(f"stopped: {type(fault).__name__}: {fault}")
            service = None
        if service is not None and (way == "restarts" or cut is cuts[-1]):
            service.close()
    return "\n".join([*world.lines, ""])


def _settings(corpus: Corpus, scratch: Path) -> Config:
    """Return the program's settings for a bucket, completed by a look at the whole of it."""
    loaded: Loaded = load(
        {
            "upstream_uri": corpus.sink_uri(_BUCKET),
            "downstream_uri": "mysql://root@127.0.0.1:3306/",
            "config": str(corpus.write_config(scratch)),
            "tz": corpus.timezone,
            "partitions": 3,
            "allow_missing_commit_ts": None if has_commit_ts(corpus) else True,
        },
        {},
    )
    if loaded.unset:
        last = corpus.cuts[-1]
        storage = MemoryStorage({path: corpus.content(path, last) for path in (*last.files, METADATA)})
        loaded = completed(loaded, inspect(storage, loaded.config.upstream, loaded.origins, _NOW))
    return loaded.config


def _later() -> PatientClock:
    """Return a clock that no recording is ahead of."""
    clock = PatientClock()
    clock.jump(_NOW - clock.now())
    return clock


def _generated(corpus: Corpus) -> frozenset[tuple[str, str]]:
    """Return table and column of what the source computes, folded; rows hold none of those that are virtual."""
    return frozenset(
        (table.name.lower(), column.name.lower())
        for cut in corpus.cuts
        for table in corpus.golden(cut)
        for column in table.columns
        if column.extra.startswith("VIRTUAL")
    )


@dataclass(slots=True)
class _World:
    """A bucket and a target, and the lines that tell what was done."""

    config: Config
    generated: frozenset[tuple[str, str]]
    server_type: str
    lines: list[str] = field(default_factory=list)
    records: TargetRecords = field(default_factory=TargetRecords)
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    clock: PatientClock = field(default_factory=_later)
    _shown: dict[str, bytes] = field(default_factory=dict)

    def show(self, corpus: Corpus, cut: Cut) -> None:
        """Make the bucket hold what existed at a cut."""
        for path in sorted({*cut.files, METADATA}):
            may_change = corpus.expected_loss or path == METADATA or path.endswith(".index")
            if path not in self._shown or may_change:
                content = corpus.content(path, cut)
                if self._shown.get(path) != content:
                    self.storage.put(path, content)
                    self._shown[path] = content if may_change else b""

    def process(self) -> ConsumerService:
        """Return a new process, with parts of its own."""
        self.clock.advance(60)
        state = MemoryState(self.records, self.clock)
        workers = DdlWorkers(lambda _: self._runner(state), self.clock, in_place)
        return ConsumerService(self.config, state, lambda manager: self._context(manager, state, workers), self.clock)

    def _runner(self, state: MemoryState) -> Any:
        target = _DefinedTarget(self)
        return _Runner(DdlRunner(target, state.journal, self.server_type, clock=self.clock), target)

    def _context(self, manager: ConsumerManager, state: Any, workers: DdlWorkers) -> RoundContext:
        upstream = self.config.upstream
        return RoundContext(
            config=self.config,
            reader=StorageReader(self.storage, upstream, self.clock, full_listing_interval=3600),
            manager=manager,
            state=state,
            target=_DefinedTarget(self),
            ddl_workers=workers,
            pipeline=_Pipeline(self.storage, upstream, lambda _: _Counting(self.lines), self.lines),
            server_info=replace(FACTS, server_type=self.server_type),
            progress=Silent(),
            clock=self.clock,
            secrets_file="",
        )

    def round_ended(self, summary: Any) -> None:
        """Note what a round told and what is stored after it."""
        self.lines += [
            f"table {t.table}: {t.state} at {t.checkpoint}, {t.rows} rows, {t.files} files, {t.ddls} ddl, {t.error}"
            for t in summary.tables
        ]
        self.lines += [f"skipped {count}: {reason}" for reason, count in sorted(summary.skipped.items())]
        records = self.records
        self.lines.append(f"stored {records.checkpoint} {records.lowest} {records.storage_checkpoint}")
        for key, table in sorted(records.tables.items()):
            copies = table.copies
            held = (
                "" if copies is None else f" copies {sorted(copies.absent)} {sorted(copies.listed)} {copies.copied_at}"
            )
            self.lines.append(
                f"stored {key} ({table.schema}.{table.table}): {table.checkpoint} {table.state} follows={table.follows}"
                f" target={table.target} {table.error}{held}"
            )
        self.lines += [
            f"stored {name}: upto {s.upto}, left out {s.left_out}" for name, s in sorted(records.sequences.items())
        ]
        self.lines += [f"in doubt {key}: {found.reason}" for key, found in sorted(records.verified.items())]
        self.lines += [
            f"journal {tuple(identity)}: {entry.state} {entry.note}"
            for identity, entry in sorted(records.journal.items())
        ]


class _DefinedTarget(MemoryTarget):
    """A target in which each statement takes effect as the schema file of the statement says."""

    def __init__(self, world: _World) -> None:
        """Open a handle on the world's records."""
        super().__init__(world.records)
        self._world = world
        self.step: DdlStep | None = None

    def database_collation(self, schema: str) -> str | None:
        """Return the default collation if the database exists."""
        return super().database_collation(schema.lower())

    def execute_ddl(
        self, statement: str, schema: str, version: int, ignorable: frozenset[int] = frozenset()
    ) -> DdlAnswer:
        """Give the tables of a statement the structure that it leads to."""
        del ignorable
        world, step = self._world, self.step
        assert step is not None
        world.lines.append(f"ddl {version} in {schema!r}: {statement}")
        name, structures = step.definition.name.folded(), world.records.structures
        if made := _CREATE_DATABASE.match(statement):
            world.records.databases.add(_table_name(made[1], "").table.lower())
        elif _DROP_DATABASE.match(statement):
            world.records.databases.discard(name.schema)
            for there in [there for there in structures if there.schema == name.schema]:
                del structures[there]
        elif _DROP.match(statement):
            structures.pop(name, None)
        elif step.definition.columns:
            if old := _RENAME.match(statement) or _ALTER_RENAME.match(statement):
                structures.pop(_table_name(old[1], schema).folded(), None)
            view = bool(re.match(r"CREATE\b.*?\bVIEW\b", statement, re.IGNORECASE | re.DOTALL))
            structures[name] = self._structure(step, is_view=view)
        return DdlAnswer()

    def _structure(self, step: DdlStep, *, is_view: bool) -> TargetTable:
        """Return the table that a schema file describes."""
        definition, source = step.definition, step.origin.definition.name
        shown = [column for column in definition.columns if not column.name.startswith(_HIDDEN)]
        key = tuple(column.name for column in shown if column.is_pk)
        keys = (UniqueKey(name="PRIMARY", columns=key, prefixes=(None,) * len(key)),) if key else ()
        computed = {column for table, column in self._world.generated if table == str(source).lower()}
        columns = tuple(_column(column, virtual=column.name.lower() in computed) for column in shown)
        return TargetTable(name=definition.name, columns=columns, unique_keys=keys, is_view=is_view)


def _column(column: TableColumn, *, virtual: bool) -> TargetColumn:
    kind = {"VAR_STRING": "VARCHAR"}.get(column.type, column.type).lower()
    return TargetColumn(
        name=column.name,
        data_type=kind,
        nullable=column.nullable and not column.is_pk,
        generated="VIRTUAL" if virtual else "",
        digits=column.scale,
        length=column.precision,
        collation="utf8mb4_bin" if "char" in kind or "text" in kind else "",
        column_type=kind + (f"({','.join(map(repr, column.elements))})" if column.elements else ""),
    )


def _table_name(text: str, schema: str) -> TableName:
    """Return the name that a statement spells."""
    parts = [part.strip("`").replace("``", "`") for part in re.findall(r"`(?:[^`]|``)*`|[\w$]+", text)]
    return TableName(schema=parts[0] if len(parts) > 1 else schema, table=parts[-1])


class _Runner:
    """A `DdlRunner` whose target is told which step a statement belongs to."""

    def __init__(self, runner: DdlRunner, target: _DefinedTarget) -> None:
        self._runner = runner
        self._target = target

    def run(self, step: DdlStep, context: DdlContext, moved: Sequence[TableProgress]) -> str:
        """Run the statement; note what else is stored with it."""
        self._target.step = step
        lines = self._target._world.lines
        made = context.made_by.version if context.made_by else None
        lines.append(
            f"step {step.version} {step.name} key={step.table_key} ensure={step.ensure} inferred={step.inferred} "
            f"skip={step.skip!r} ours={context.database_is_ours} seen={context.table_was_seen} made_by={made} "
            f"databases={context.database_statements} query={step.definition.query}"
        )
        lines += [f"  moves {m.table_key} to {m.checkpoint} {m.state} follows={m.follows}" for m in moved]
        note = self._runner.run(step, context, moved)
        lines.append(f"  note: {note}")
        return note

    def __getattr__(self, name: str) -> Any:
        """Return what else a runner has."""
        return getattr(self._runner, name)


class _Pipeline(MemoryPipeline):
    """A twin that notes each job and its reports."""

    def __init__(self, storage: Any, upstream: Any, writer: Callable[[JobSpec], Any], lines: list[str]) -> None:
        super().__init__(storage, upstream, writer)
        self._lines = lines

    def run(self, spec: JobSpec, files: Sequence[JobFile], progress: Progress) -> list[FileReport | WriteReport]:
        """Run the job and note it."""
        self._lines.append(f"job of {len(spec.tables)} tables, {len(files)} files, {spec.partitions} partitions")
        self._lines += [_planned(plan) for plan in spec.tables]
        self._lines += [f"  file {f.table} {f.rank} newest={f.newest} {f.file.stored.path}" for f in files]
        reports = super().run(spec, files, progress)
        for report in reports:
            if isinstance(report, FileReport):
                counts = f"rows {report.rows}, duplicates {report.duplicates}, later {report.later}, applied {report.applied}"
                stamps = f"max {report.max_ts}, next {report.next_ts}"
                self._lines.append(f"  read {report.path}: {counts}, {stamps} {report.error}")
            else:
                self._lines.append(f"  wrote {report.table}: {report.written} {report.error}")
        return reports


def _planned(plan: TablePlan) -> str:
    commit_range = plan.commit_range
    columns = ",".join(f"{column.name}:{column.kind.name}:{column.type}" for column in plan.written)
    key = ",".join(f"{part.column.name}:{part.fold.value}:{part.prefix}" for part in plan.key)
    versions = " ".join(
        f"{version}@{table_dir}(>{v.low} {v.written} {v.key} {v.misfit!r} {v.is_all_duplicates})"
        for (version, table_dir), v in sorted(plan.versions.items())
    )
    return (
        f"  plan {plan.index} {plan.name} {plan.table_key} ({commit_range.low}, {commit_range.high}] {plan.mode.value} "
        f"replaces={plan.replaces} other={plan.has_other_unique_keys} written={columns} key={key} versions={versions}"
    )


class _Counting:
    """A `pipeline.RowWriter` that notes how many lines it was given, and their checksum."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def write_together(self, states: Sequence[tuple[TablePlan, Sequence[Run]]]) -> list[int]:
        """Note each."""
        return [self.write_runs(work, runs).rows for work, runs in states]

    def write_runs(self, work: TablePlan, ordered: Sequence[Run], place_of: PlaceOf | None = None) -> Written:
        """Note all runs of a table."""
        del place_of
        upserts = (Action.INSERT, Action.REPLACE)
        # Sorted, so that the note does not depend on which rows came into being.
        events = sorted((run.action in upserts, line) for run in ordered for line in run.lines)
        return Written(self._note(work, iter(events)))

    def write_events(self, work: TablePlan, parts: Iterable[Changes]) -> int:
        """Note all events of a table."""
        return self._note(
            work, (event for part in parts for _, events in by_commit_ts(part.after(0)) for event in events)
        )

    def _note(self, work: TablePlan, events: Iterator[tuple[bool, bytes]]) -> int:
        counts, checksum = [0, 0], 0
        for upsert, line in events:
            counts[upsert] += 1
            checksum = zlib.crc32(line, checksum)
        self._lines.append(f"  lines {work.index}: {counts[0]} deletes, {counts[1]} upserts, {checksum:08x}")
        return sum(counts)


KNOWN = Path(__file__).with_name("waves.tsv")
VIEWS = (*((way, "mysql") for way in WAYS), ("whole", "mariadb"), ("whole", "tidb"))
"""Way and kind of server of each text."""


def texts(source: CorpusSource, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each view of a bucket; `scratch` is an empty folder."""
    corpus = source.open(scratch)
    for way, server_type in VIEWS:
        yield f"{way}-{server_type}", trace(corpus, way, scratch, server_type)


def digests(source: CorpusSource, into: Path | None = None) -> tuple[str, ...]:
    """Return the digest of each view of a bucket; write the texts below `into` if it is given."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts(source, Path(scratch)):
            if into is not None:
                path = into / f"{source}.{name}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found.append(sha256(text.encode()).hexdigest()[:12])
    return tuple(found)


def known() -> Mapping[str, tuple[str, ...]]:
    """Return the digests of before: bucket → one for each view."""
    rows = (line.split("\t") for line in KNOWN.read_text(encoding="utf-8").splitlines())
    return {name: tuple(rest) for name, *rest in rows}


def main() -> int:
    """Compare all buckets, or accept what they are now; return 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns waves", description=__doc__)
    parser.add_argument("--into", type=Path, help="write the texts to this folder")
    parser.add_argument("--accept", action="store_true", help="write the digests anew")
    parser.add_argument("--only", default="", help="only buckets whose name has this in it")
    asked = parser.parse_args()
    logging.disable()
    before = dict(known()) if KNOWN.exists() else {}
    different, number = [], 0
    for source in available(root()):
        if asked.only in str(source):
            number += 1
            now = digests(source, asked.into)
            if before.get(str(source)) != now:
                different.append(str(source))
                print(f"{source} differs", flush=True)
            before[str(source)] = now
    if asked.accept:
        KNOWN.write_text(
            "".join("\t".join((name, *row)) + "\n" for name, row in sorted(before.items())), encoding="utf-8"
        )
    print(f"{number} buckets, {len(different)} differ")
    return int(bool(different) and not asked.accept)


if __name__ == "__main__":
    sys.exit(main())
