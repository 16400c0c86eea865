"""Inspect a bucket by one listing and a bounded sample of files, and infer its settings.

A run that was given too few settings takes the inferred ones from here, or learns which it has to
be given.

Where the named folder has no ``metadata``, the changefeed's may be some levels up, or one down.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Literal

from storage_consumer.bucket.csv_options import infer_csv
from storage_consumer.bucket.foreign import KINDS, kind_of_content
from storage_consumer.bucket.metadata import Metadata, parse_metadata
from storage_consumer.bucket.paths import TMP
from storage_consumer.bucket.reader import is_partitioned, may_be_lost, partitioning
from storage_consumer.bucket.storage import METADATA_BYTES, Storage, read_up_to
from storage_consumer.bucket.survey import (
    HEAD,
    Sample,
    Samples,
    Survey,
    ignore_unplaced,
    leave_out_copies,
    survey,
)
from storage_consumer.clock import data_size, some_of
from storage_consumer.config.load import CSV_KEYWORDS, Loaded
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Upstream
from storage_consumer.decode.csv_dialect import caveat
from storage_consumer.errors import ConfigError, StorageConsumerError
from storage_consumer.model import (
    DAY_MS,
    TSO_PHYSICAL_SHIFT,
    TableDefinition,
    TableName,
    TableVersion,
)

State = Literal["given", "inferred", "assumed", "not decidable", "unknown", "contradicts"]


@dataclass(frozen=True, slots=True)
class InspectedSetting:
    """One option that says how the files were written."""

    keyword: str
    state: State
    """``given``: the user gave it; ``assumed``: no file shows it, so TiCDC's default is taken;
    ``not decidable``: several values fit the files; ``unknown``: no file shows it.
    """
    value: object = None
    """The value; None if it is not known."""
    origin: str = ""
    """Who gave it, or the file and row it was inferred from, or what it contradicts."""

    @property
    def name(self) -> str:
        """The flag without leading dashes."""
        return BY_KEYWORD[self.keyword].name

    @property
    def is_missing(self) -> bool:
        """Whether the user has to give it."""
        return self.state in ("not decidable", "unknown")


@dataclass(slots=True, kw_only=True)
class TableFacts:
    """One table directory."""

    directory: str
    name: TableName | None
    """The table's name; None if its schema files were not read."""
    versions: int
    files: int = 0
    size: int = 0
    """Bytes of its data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedBucket:
    """A bucket as inspected."""

    place: str
    """Scheme and root."""
    layouts: tuple[str, ...]
    architecture: str
    """``classic``, ``new``, or ``not tellable``."""
    index_widths: tuple[int, ...]
    """Digits of the file numbers."""
    dispatchers: bool
    """Whether file names contain the dispatcher that wrote them."""
    settings: tuple[InspectedSetting, ...]
    tables: tuple[TableFacts, ...]
    """The tables, largest first."""
    objects: int
    size: int
    """Bytes of all objects."""
    data_files: int
    schema_files: int
    sampled: int
    """Number of data files that were read in part."""
    checkpoint: int
    """``checkpoint-ts`` of ``metadata``; 0: none."""
    commit_ts: tuple[int, ...]
    """Lowest and highest commit-ts of the sampled rows (both inclusive); empty if none was seen."""
    versions: tuple[int, ...]
    """Lowest and highest table version of all paths (both inclusive); empty if there is none."""
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What older releases of TiCDC may have done to such files, and which release mends it."""
    likely: tuple[str, ...] = ()
    """URIs of nearby folders with a ``metadata``, if this one has none with a checkpoint."""
    foreign: str = ""
    """What this is, if it is no changefeed's folder, and the way on; then there are no settings."""
    upstream: Upstream
    """The settings, completed by inference."""

    @property
    def missing(self) -> tuple[InspectedSetting, ...]:
        """The settings that the user has to give."""
        return tuple(setting for setting in self.settings if setting.is_missing)

    @property
    def contradictions(self) -> tuple[InspectedSetting, ...]:
        """The settings that were given but do not match the files."""
        return tuple(setting for setting in self.settings if setting.state == "contradicts")

    @property
    def inferred(self) -> Mapping[str, str]:
        """Keyword → what it was inferred from, or why it was assumed."""
        return {
            each.keyword: each.origin
            for each in self.settings
            if each.state in ("inferred", "assumed")
        }

    @property
    def assumed(self) -> tuple[InspectedSetting, ...]:
        """The settings that take TiCDC's default although no file shows it."""
        return tuple(setting for setting in self.settings if setting.state == "assumed")


_MOST_MESSAGES = 200


def _messages(sample: Sample) -> Iterator[tuple[dict[str, object], str | None]]:
    """Yield messages and what follows each; None if the sample ends before that is known."""
    text = sample.content.decode("utf-8", "replace")
    position = 0
    for _ in range(_MOST_MESSAGES):
        try:
            message, position = json.JSONDecoder().raw_decode(text, position)
        except ValueError:
            return
        if not isinstance(message, dict) or "database" not in message:
            return
        # Up to the brace that begins the next message: a terminator with a brace is not recognized.
        end = text[position:].partition("{")[0]
        position += len(end)
        # At the end of what was read the terminator may be cut short.
        yield message, end if position < len(text) or sample.complete else None


_UP = 3
"""Levels above: a database, a table in it, and one of its versions."""
_DOWN = 20
"""Upper limit of the folders below that are checked, each found by a listing of its own."""
_OBJECTS = 1_000
"""Objects to read of one listing."""


def likely_places(upstream: Upstream, opened: Callable[[Upstream], Storage]) -> tuple[str, ...]:
    """Return URIs of folders near `upstream` with TiCDC's ``metadata``, as far as readable."""
    near, folder = list[Upstream](), upstream.root
    for _ in range(_UP):
        folder = folder.rpartition("/")[0]
        if folder:
            near.append(replace(upstream, root=folder))
    storage, known = opened(upstream), set[str]()
    with suppress(StorageConsumerError):
        for _ in range(_DOWN):
            # The next listing leaves out each found folder: a large one must not hide the others.
            shown = islice(storage.listing(frozenset(known), {}), _OBJECTS)
            folders = (stored.path.partition("/")[0] for stored in shown if "/" in stored.path)
            below = next((name for name in folders if name not in known), None)
            if below is None:
                break
            known.add(below)
            near.append(replace(upstream, root=f"{upstream.root.rstrip('/')}/{below}"))
    likely = []
    for each in near:
        storage = opened(each)
        with suppress(StorageConsumerError, FileNotFoundError):
            if parse_metadata(storage.read("metadata", METADATA_BYTES)) is not None:
                likely.append(each.identity)
    return tuple(likely)


def missing_metadata(upstream: Upstream, opened: Callable[[Upstream], Storage]) -> str:
    """Return what to tell an operator about a bucket without ``metadata``."""
    said = f"{upstream.identity} has no metadata file, which TiCDC writes into the folder of its sink URI with its first checkpoint"
    if places := likely_places(upstream, opened):
        return f"{said}. The changefeed's folder is likely {' or '.join(places)}: give that as --upstream-uri"
    with suppress(StorageConsumerError):
        storage = opened(upstream)
        seen = survey(islice(storage.listing(frozenset(), {}), _OBJECTS))
        if kind := _kind(storage, seen, {}, is_begun=False):
            return f"{said}. {kind}"
    return (
        f"{said}: nothing is read or created before there is one. Is the upstream URI the changefeed's sink URI, "
        "and does it run?"
    )


def _kind(storage: Storage, seen: Survey, samples: Mapping[str, bytes], *, is_begun: bool) -> str:
    """Return a folder's kind of `foreign.KINDS` and the way on; empty if none, or a changefeed's.

    `samples`: path → beginning of data files that have a schema file; `is_begun`: whether there is
    a checkpoint.
    """
    is_ours = is_begun or seen.folders or seen.schemas or seen.old_schemas or TMP in seen.ignored
    shown = {
        kind: path
        for kind, path in seen.kinds.items()
        if not is_ours or (kind == "compressed" and not seen.folders)
    }
    contents = dict(samples)
    unplaced: list[str] = []
    # The content of files without a schema file may show what they are.
    if not (shown or contents or seen.schemas or seen.old_schemas):
        unplaced = [
            each.first.path for each in islice(seen.folders.values(), 3) if each.first
        ] or seen.strangers
    for path in unplaced:
        with suppress(StorageConsumerError, FileNotFoundError):
            contents[path] = read_up_to(storage, path, HEAD)
    kinds = {kind_of_content(content): path for path, content in contents.items()}
    # One file that is unlike the others is damaged.
    if not shown and len(kinds) == 1:
        shown = kinds
    key = next((key for key in KINDS if key in shown), "")
    return (
        f"{shown[key]} shows that these are {KINDS[key].name}. {KINDS[key].way_on}" if key else ""
    )


def _foreign(storage: Storage, seen: Survey, samples: Samples, checkpoint: int) -> str:
    """Return what a folder is instead of a changefeed's, with the way on; or empty.

    Empty also if it may become a changefeed's.
    """
    if kind := _kind(
        storage,
        seen,
        {each.path: each.content for each in samples.files},
        is_begun=bool(checkpoint),
    ):
        return kind
    if checkpoint or seen.folders or seen.schemas or seen.old_schemas or TMP in seen.ignored:
        return ""
    if not seen.objects:
        return (
            "there is no object at all. If the changefeed is new, wait for its first files, or `run` with its TOML file (--config); "
            "else give its sink URI as --upstream-uri, with the same prefix"
        )
    example = next(iter(seen.examples.values()), "metadata")
    return (
        f"none of the {seen.objects:,} objects is one that TiCDC writes, for example {example}. Give the changefeed's sink URI as "
        "--upstream-uri"
    )


def refuse_foreign(bucket: InspectedBucket) -> None:
    """Raise `ConfigError` if this is no changefeed's folder."""
    if bucket.foreign:
        raise ConfigError(f"{bucket.place} is no changefeed's folder: {bucket.foreign}")


_SHOWN = 10
_MANY, _SMALL = 1_000, 16 << 10
"""Fewest data files, and average bytes (exclusive), that count as many small ones."""
_TEXTS = re.compile("char|text|enum|set|json")
_TWICE = (
    "file names hold dispatchers: TiCDC before v8.5.8 may let two of them write the same rows after a failover (ticdc#5083); "
    "rows that come twice are recognised by their commit-ts"
)
_NULLS = (
    "{} holds NULL for a text: in canal-json, TiCDC of the new architecture before v8.5.5 and v26.3.1 writes the text `null` as NULL "
    "(ticdc#3958). After an upgrade load such tables anew; `storage-consumer verify` tells which they are"
)
_SILENT = (
    "no statement says how {} came to its columns: an event filter kept it out, or TiCDC of the new architecture before v8.5.8 lost it "
    "(ticdc#5401). Make the same change in the target, or load the table anew (`storage-consumer load`)"
)
_RAW_KEYS = (
    "CSV in the layout before TiCDC 6.5.3 and 7.1: unless enable-old-value was false, an update of a key shows only the new key "
    "(tiflow#9430, mended in v6.5.5 and v7.1.2), so the old row stays. Upgrade TiCDC, then load tables whose keys change; "
    "`storage-consumer verify` tells which they are"
)
NO_DATA = "no data file yet"
NO_NULL = "no sampled row holds a NULL, and a number that stands for NULL would be read as a number"
NO_BINARY = "rows without binary values; a table halts at the first one"
_NO_CHECKPOINT = "nothing can be applied before there is one"
_SEVERAL = "the files allow several values"
_FIELDS = {"enable_partition_separator": "partition_separator"}
"""Keyword → field of `Upstream`, where that is called otherwise."""
_OF_PATHS = frozenset({"date_separator", "enable_partition_separator"})
"""Options that the bucket's reader compares with each path itself."""


def inspect(
    storage: Storage,
    upstream: Upstream,
    given: Mapping[str, str],
    now: float,
    opened: Callable[[Upstream], Storage] | None = None,
) -> InspectedBucket:
    """Return how the bucket was written.

    `given` maps an option's keyword to who gave its value in `upstream`; `now` is in seconds since
    1970.

    `opened`: opens a folder nearby that it may be instead, if it has no checkpoint; None: no such
    folder is searched for.

    Reads ``metadata``, lists once, and reads some hundred files at most. Raises
    `StorageUnavailable` and `ConfigError` as the storage does.
    """
    metadata, odd = Metadata(), tuple[str, ...]()
    with suppress(FileNotFoundError):
        odd = metadata.update(storage.read("metadata", METADATA_BYTES), now)
    checkpoint = metadata.checkpoint
    seen = survey(storage.listing(frozenset(), {}))
    leave_out_copies(storage, seen)
    ignore_unplaced(seen)
    samples = Samples(storage, seen)
    samples.take()
    # A day beyond both clocks: neither the machine's nor the source's must be exact.
    newest = max(checkpoint >> TSO_PHYSICAL_SHIFT, int(now * 1000)) + DAY_MS
    samples.warnings[:0] = odd
    inspection = _Inspection(
        upstream=upstream,
        given=given,
        seen=seen,
        samples=samples,
        newest=newest << TSO_PHYSICAL_SHIFT,
    )
    likely = likely_places(upstream, opened) if opened and not checkpoint else ()
    if foreign := "" if likely else _foreign(storage, seen, samples, checkpoint):
        return replace(inspection.bucket(checkpoint, (), likely), foreign=foreign)
    settings = (
        *inspection.format_settings(),
        *inspection.path_settings(),
        *inspection.zone_settings(),
    )
    return inspection.bucket(checkpoint, settings, likely)


def completed(loaded: Loaded, bucket: InspectedBucket) -> Loaded:
    """Return the settings with everything that was given or inferred.

    Raises `ConfigError` that names each setting which the bucket contradicts or leaves open, and
    how to give it.
    """
    refuse_foreign(bucket)
    needed = set(loaded.unset)
    # The reader meets each path that contradicts these, and reports it.
    against = [each for each in bucket.contradictions if each.keyword not in _OF_PATHS]
    if against:
        raise ConfigError(
            f"{bucket.place} contradicts the settings: "
            + "; ".join(
                f"--{each.name} was given as {each.value!r}, but {each.origin}" for each in against
            )
        )
    missing = [each for each in bucket.missing if each.keyword in needed]
    if missing:
        names = ", ".join(f"--{BY_KEYWORD[each.keyword].name} ({each.origin})" for each in missing)
        # As where it is a folder above the changefeed's.
        unlike = "" if bucket.checkpoint else f"{bucket.place}: {bucket.warnings[0]}. "
        raise ConfigError(
            f"{unlike}{bucket.place} does not show how it was written, and no setting says it: give the changefeed's TOML "
            f"file with --config, and its sink URI as --upstream-uri; or give {names}. `storage-consumer inspect` "
            "lists what the bucket shows"
        )
    return loaded.completed(bucket.upstream, bucket.inferred)


@dataclass(slots=True, kw_only=True)
class _Inspection:
    """What was read, and what follows from it."""

    upstream: Upstream
    given: Mapping[str, str]
    seen: Survey
    samples: Samples
    newest: int
    """Highest commit-ts that a row may have (inclusive)."""
    commit_ts: tuple[int, ...] = ()
    set_aside: tuple[str, ...] = ()
    null_text: str = ""
    """File and row of a NULL in a column of text; empty: none was seen."""

    def format_settings(self) -> list[InspectedSetting]:
        """Return the protocol, and what the data files of that protocol show."""
        names = {"csv": "csv", "json": "canal-json"}
        found = {
            names[ext]: folder for folder in self.seen.folders.values() for ext in folder.extensions
        }
        known, is_given = self.upstream.protocol, "protocol" in self.given
        if is_given and found and known not in found:
            origin = f"{next(iter(found.values())).path} holds no {known}"
            protocol = InspectedSetting("protocol", "contradicts", known, origin)
        elif len(found) == 1 and not is_given:
            ((value, folder),) = found.items()
            protocol = InspectedSetting("protocol", "inferred", value, (folder.last or folder).path)
        elif found:
            protocol = self._given_or("protocol", "not decidable", "there are .csv and .json files")
        else:
            protocol = self._given_or("protocol", "unknown", NO_DATA)
        if protocol.is_missing:
            keywords = [*CSV_KEYWORDS, "enable_tidb_extension"]
            return [
                protocol,
                *(self._given_or(keyword, "unknown", NO_DATA) for keyword in keywords),
            ]
        # From here on with what was found, since the samples are decoded under these settings.
        self.upstream = replace(
            self.upstream, protocol="csv" if protocol.value == "csv" else "canal-json"
        )
        wanted = "csv" if protocol.value == "csv" else "json"
        files = [sample for sample in self.samples.files if sample.extension == wanted]
        return [protocol, *(self._csv(files) if wanted == "csv" else self._canal(files))]

    def _csv(self, files: list[Sample]) -> list[InspectedSetting]:
        if not files:
            return [self._given_or(keyword, "unknown", NO_DATA) for keyword in CSV_KEYWORDS]
        given = frozenset(CSV_KEYWORDS) & self.given.keys()
        if self.upstream.csv.output_handle_key:
            # the new architecture accepts the setting but writes no such field
            given -= {"output_handle_key"}
        verdict = infer_csv(files, self.upstream, given, self.newest)
        found: list[InspectedSetting] = []
        if verdict.unnamed:
            self.samples.warnings.insert(0, verdict.unnamed)
        if verdict.survivors:
            self.commit_ts, self.set_aside = verdict.commit_ts, verdict.set_aside
            # What is decided is the same in all survivors.
            options = verdict.survivors[0]
            for keyword in CSV_KEYWORDS:
                value = getattr(options, keyword)
                if keyword in self.given or keyword in verdict.undecided:
                    found.append(self._given_or(keyword, "not decidable", _SEVERAL))
                elif keyword in verdict.unseen:
                    found.append(InspectedSetting(keyword, "assumed", value, NO_NULL))
                else:
                    self.upstream = _with_csv(self.upstream, keyword, value)
                    is_open = value == "" and keyword == "binary_encoding_method"
                    origin = NO_BINARY if is_open else verdict.evidence.get(keyword, "")
                    found.append(InspectedSetting(keyword, "inferred", value, origin))
            return found
        # Again without the given options: where that succeeds, one of them is wrong.
        free = infer_csv(files, self.upstream, frozenset(), self.newest) if given else verdict
        for keyword in CSV_KEYWORDS:
            shown = {getattr(options, keyword) for options in free.survivors}
            known = getattr(self.upstream.csv, keyword)
            # Another option is to blame, or the files do not show this one.
            if keyword not in self.given or not shown or known in shown or shown == {""}:
                found.append(self._given_or(keyword, "not decidable", verdict.reason))
                continue
            values = " or ".join(repr(value) for value in sorted(shown, key=repr))
            origin = f"{free.evidence.get(keyword, 'the files')} shows {values}"
            found.append(InspectedSetting(keyword, "contradicts", known, origin))
        return found

    def _canal(self, files: list[Sample]) -> list[InspectedSetting]:
        """Return what messages show: they name their fields, so there is little to find out."""
        if not files:
            return [
                self._given_or(keyword, "unknown", NO_DATA)
                for keyword in ("enable_tidb_extension", "terminator")
            ]
        terminators: dict[object, str] = {}
        extensions: dict[object, str] = {}
        seen: set[int] = set()
        for sample in files:
            number = 0
            for number, (message, end) in enumerate(_messages(sample), start=1):
                place = f"{sample.path} row {number}"
                inner = message.get("_tidb")
                ts = inner.get("commitTs") if isinstance(inner, dict) else None
                found = {ts} if isinstance(ts, int) and ts > 0 else set[int]()
                extensions.setdefault(bool(found), place)
                seen |= found
                if end is not None:
                    terminators.setdefault(end, place)
                self.null_text = self.null_text or (place if _has_null_text(message) else "")
            # A sample that is cut off may end inside its first message, which shows nothing.
            if not number and sample.complete:
                self.set_aside += (sample.path,)
        self.commit_ts = (min(seen), max(seen)) if seen else ()
        extension = self._one_of("enable_tidb_extension", extensions)
        if extension.state == "inferred":
            self.upstream = replace(self.upstream, enable_tidb_extension=bool(extension.value))
        terminator = self._one_of("terminator", terminators)
        if terminator.state == "inferred":
            self.upstream = _with_csv(self.upstream, "terminator", str(terminator.value))
        return [extension, terminator]

    def _one_of(self, keyword: str, shown: Mapping[object, str]) -> InspectedSetting:
        """Return a setting that each message shows: inferred if they agree."""
        if len(shown) != 1 or keyword in self.given:
            return self._held_against(
                keyword, shown, _SEVERAL if shown else "no message can be read"
            )
        ((value, place),) = shown.items()
        return InspectedSetting(keyword, "inferred", value, place)

    def _held_against(
        self, keyword: str, shown: Mapping[object, str], why_not: str
    ) -> InspectedSetting:
        """Return a setting as given, or contradicted by a place; not decidable if not given."""
        known = self._value(keyword)
        against = next((place for value, place in shown.items() if value != known), "")
        if against and keyword in self.given:
            return InspectedSetting(keyword, "contradicts", known, f"{against} shows another")
        return self._given_or(keyword, "not decidable", why_not)

    def path_settings(self) -> list[InspectedSetting]:
        """Return what the directories show."""
        folders = self.seen.placed()
        partitions = {folder.partition: folder.path for folder in folders if folder.partition}
        return [
            self._shown_by_paths(
                "date_separator", {folder.date: folder.path for folder in folders}
            ),
            self._shown_by_paths("enable_partition_separator", partitions),
        ]

    def _shown_by_paths(self, keyword: str, shown: Mapping[Any, str]) -> InspectedSetting:
        if keyword in self.given:
            return self._held_against(keyword, shown, "")
        if not shown:
            return InspectedSetting(keyword, "inferred", None, "the paths; none shows it yet")
        # An upgraded changefeed leaves directories of both kinds, and each path is read as it is.
        value = next(iter(shown)) if len(shown) == 1 else ", ".join(sorted(map(str, shown)))
        return InspectedSetting(keyword, "inferred", value, next(iter(shown.values())))

    def zone_settings(self) -> list[InspectedSetting]:
        """Return the time zone, which no file shows and only TIMESTAMP columns need."""
        if self.upstream.time_zone:
            return [
                InspectedSetting("tz", "given", self.upstream.time_zone, self.given.get("tz", ""))
            ]
        tables = sorted(
            {
                str(definition.name)
                for definitions in self.samples.definitions.values()
                for definition in definitions
                if any(column.type == "TIMESTAMP" for column in definition.columns)
            }
        )
        if not tables:
            return []
        origin = f"no file shows it, and tables with TIMESTAMP columns halt without it: {some_of(tables, 3)}"
        return [InspectedSetting("tz", "unknown", None, origin)]

    def bucket(
        self, checkpoint: int, settings: tuple[InspectedSetting, ...], likely: tuple[str, ...]
    ) -> InspectedBucket:
        """Return all findings as one record."""
        seen = self.seen
        schemas = [
            found
            for kind in (seen.schemas, seen.old_schemas)
            for each in kind.values()
            for found in each.items()
        ]
        versions = [version for version, _ in schemas]
        tables = {}
        for directory in {*seen.schemas, *seen.old_schemas}:
            known = self.samples.definitions.get(directory)
            name = max(known, key=lambda each: each.version).name if known else None
            # Another one is of a database, not of a table.
            if name is None or name.table:
                tables[directory] = TableFacts(
                    directory=directory, name=name, versions=len(seen.versions(directory))
                )
        for folder in seen.placed():
            if table := tables.get(folder.table_dir):
                table.files += folder.files
                table.size += folder.size
        ids = [each for each in seen.schemas if each.isdecimal()]
        layouts = {
            "table ids as paths": ids,
            "current (schema files in meta/)": len(seen.schemas) > len(ids),
            "before TiCDC 6.5.3 and 7.1 (schema.json beside the data)": seen.old_schemas,
        }
        architecture = self._architecture()
        dispatchers = any(name for folder in seen.folders.values() for name, _ in folder.sequences)
        notes = [_TWICE] if dispatchers else []
        if self.null_text and architecture != "classic":
            notes.append(_NULLS.format(self.null_text))
        return InspectedBucket(
            place=self.upstream.identity,
            layouts=tuple(name for name, is_there in layouts.items() if is_there),
            architecture=architecture,
            index_widths=tuple(
                sorted({width for folder in seen.folders.values() for width in folder.widths})
            ),
            dispatchers=dispatchers,
            settings=settings,
            tables=tuple(sorted(tables.values(), key=lambda each: (-each.size, each.directory))),
            objects=seen.objects,
            size=seen.size,
            data_files=sum(folder.files for folder in seen.folders.values()),
            schema_files=sum(len(files) for _, files in schemas),
            sampled=len(self.samples.files),
            checkpoint=checkpoint,
            commit_ts=self.commit_ts,
            versions=(min(versions), max(versions)) if versions else (),
            warnings=tuple(self._warnings(checkpoint)),
            notes=tuple(notes),
            likely=likely,
            upstream=self.upstream,
        )

    def _architecture(self) -> str:
        """Return the architecture if known: the new one writes dispatchers, ids, ENUM members."""
        columns = [
            column
            for definitions in self.samples.definitions.values()
            for definition in definitions
            for column in definition.columns
            if column.type in {"ENUM", "SET"}
        ]
        named = any(name for folder in self.seen.folders.values() for name, _ in folder.sequences)
        if (
            named
            or any(column.elements for column in columns)
            or any(each.isdecimal() for each in self.seen.schemas)
        ):
            return "new"
        return "classic" if columns or self.seen.old_schemas else "not tellable"

    def _warnings(self, checkpoint: int) -> list[str]:
        found = (
            []
            if checkpoint
            else [f"{self._content()}, and no metadata with a checkpoint: {_NO_CHECKPOINT}"]
        )
        names: set[str] = set()
        for table_dir, definitions in self.samples.definitions.items():
            said = {
                each.version: value
                for each in definitions
                if (value := partitioning(each)) is not None
            }
            plain = [
                each
                for each in self.seen.placed()
                if each.table_dir == table_dir and not each.partition
            ]
            shares = any(is_partitioned(said, TableVersion(each.version)) for each in plain)
            if shares or (self.upstream.partition_separator is False and any(said.values())):
                names.add(str(definitions[0].name))
        found += [may_be_lost(names)] if names else []
        found += [
            f"{path} cannot be read with any settings: is it damaged?" for path in self.set_aside
        ]
        found += [text] if (text := caveat(self.upstream)) else []
        read = self.samples.definitions.items()
        if self.seen.old_schemas and any(
            "csv" in each.extensions for each in self.seen.folders.values()
        ):
            found.append(_RAW_KEYS)
        silent = [
            name
            for folder, known in read
            if (name := _changed_silently(known, sorted(self.seen.versions(folder))))
        ]
        found += [_SILENT.format(some_of(sorted(silent), 3))] if silent else []
        count, size = (
            sum(getattr(each, name) for each in self.seen.folders.values())
            for name in ("files", "size")
        )
        if count >= _MANY and size < count * _SMALL:
            found.append(
                f"{count:,} data files have {data_size(size // count)} on average, which costs requests more than anything else: raise "
                "flush-interval (5s) in the changefeed's [sink.cloud-storage-config], up to 10m"
            )
        gaps = [folder for folder in self.seen.folders.values() if folder.missing]
        if gaps:
            found.append(
                f"{gaps[0].path}: {gaps[0].missing} file numbers are missing; {len(gaps)} such directories"
            )
        for reason, count in sorted(self.seen.ignored.items()):
            found.append(f"{count} of {reason}, for example {self.seen.examples[reason]}")
        more = len(self.samples.warnings) - _SHOWN
        found += self.samples.warnings[:_SHOWN]
        return [*found, f"and {more} more"] if more > 0 else found

    def _content(self) -> str:
        """Return what a bucket without a checkpoint holds."""
        seen = self.seen
        if not seen.objects:
            return "there is no object at all"
        if not (seen.folders or seen.schemas or seen.old_schemas):
            return f"none of the {seen.objects} objects is one that TiCDC writes"
        return "there are files as TiCDC writes them"

    def _given_or(self, keyword: str, state: State, origin: str) -> InspectedSetting:
        """Return the given value, or else a setting in `state`."""
        if keyword in self.given:
            return InspectedSetting(keyword, "given", self._value(keyword), self.given[keyword])
        return InspectedSetting(keyword, state, None, origin)

    def _value(self, keyword: str) -> object:
        if keyword in CSV_KEYWORDS:
            return getattr(self.upstream.csv, keyword)
        return getattr(self.upstream, _FIELDS.get(keyword, keyword))


def _has_null_text(message: Mapping[str, object]) -> bool:
    """Return whether a message has a NULL in a column of text, or of JSON."""
    rows, types = message.get("data"), message.get("mysqlType")
    if not isinstance(rows, list) or not isinstance(types, dict):
        return False
    values = [item for row in rows if isinstance(row, dict) for item in row.items()]
    return any(value is None and _TEXTS.search(str(types.get(name))) for name, value in values)


def _changed_silently(definitions: list[TableDefinition], versions: list[int]) -> str:
    """Return table and version of a structure changed without a statement; empty: none is.

    `versions`: all that the table has, not only those that were read.
    """
    known = {int(each.version): each for each in definitions}
    for before, after in (
        (known[low], known[high]) for low, high in pairwise(versions) if {low, high} <= known.keys()
    ):
        if not after.is_ddl and {*before.columns} != {*after.columns} and before.name == after.name:
            return f"{after.name} at version {after.version}"
    return ""


def _with_csv(upstream: Upstream, name: str, value: object) -> Upstream:
    changed: dict[str, Any] = {name: value}
    return replace(upstream, csv=replace(upstream.csv, **changed))
