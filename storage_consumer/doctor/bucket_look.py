"""The look at the bucket: ``metadata``, one listing, and a bounded sample of its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from storage_consumer.config.settings import Upstream
from storage_consumer.errors import ConfigError, FilesMissing, StorageUnavailable
from storage_consumer.inspection.inspector import inspect
from storage_consumer.inspection.places import likely_places
from storage_consumer.inspection.result import Bucket
from storage_consumer.model import StoredObject, TableName
from storage_consumer.operating.same_files import sequence_names
from storage_consumer.storage.base import METADATA_BYTES, SCHEMA_FILE_BYTES, Storage
from storage_consumer.storage.paths import parse_data_name

_MOST_READ = 100
"""Most tables whose first schema file is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFacts:
    """The file ``metadata`` at one moment."""

    content: bytes | None
    """None if the file does not exist."""
    now: float
    """Seconds since 1970-01-01 UTC by this machine's clock."""
    likely: tuple[str, ...] = ()
    """URIs of folders nearby that have one, if this one has none."""


@dataclass(slots=True)
class Numbers:
    """The files of one numbered sequence: which numbers there are."""

    lowest: int
    highest: int
    count: int = 1


@dataclass(slots=True)
class Listed:
    """What a listing shows as it passes; it grows with the sequences, not with the files."""

    sequences: dict[str, Numbers] = field(default_factory=dict)
    """Numbers of the files that are not finished, by sequence (see `DataFile.sequence`)."""
    first_schema_files: dict[str, str] = field(default_factory=dict)
    """Folder → path of the schema file with the lowest version."""
    first_data_file: StoredObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts:
    """What the bucket holds, and what of it can be read."""

    bucket: Bucket | None
    """None if it could not be inspected."""
    why: str
    """Why not."""
    listed: Listed
    finished: Mapping[str, int]
    """Sequence → the number up to which the state has finished it (inclusive); empty without a state."""
    schema_file: str
    """What reading a schema file met; empty if it can be read, or there is none."""
    data_file: str
    """The same of a data file."""
    upstream: Upstream
    now: float
    checkpoint: int
    """The state's checkpoint; 0 without a state."""
    from_before: tuple[str, ...] = ()
    """Paths of schema files without a statement with which tables begin, as far as files were read."""
    left_out: tuple[str, ...] = ()
    """Directories of the tables that the filter or an operator leaves out, each with a slash at its end."""


def metadata_look(
    storage: Storage, upstream: Upstream, opened: Callable[[Upstream], Storage], now: float
) -> MetadataFacts:
    """Return the file ``metadata``; raise as `Storage.read` does."""
    try:
        return MetadataFacts(content=storage.read("metadata", METADATA_BYTES), now=now)
    except FileNotFoundError:
        return MetadataFacts(content=None, now=now, likely=likely_places(upstream, opened))


def bucket_look(
    storage: Storage,
    upstream: Upstream,
    origins: Mapping[str, str],
    now: float,
    finished: Mapping[str, int],
    wanted: Mapping[str, int],
) -> BucketFacts:
    """Return what the bucket holds. `origins`: see `Loaded.origins`; `wanted`: see `StateFacts`. Raises `StorageUnavailable` if it falls silent."""
    # A file that was there before is missed though no later number shows that it is gone.
    due = {name: Numbers(last, last, 0) for name, last in wanted.items() if last > finished.get(name, 0)}
    teed = _Teed(storage, {**dict.fromkeys(due, 0), **finished}, Listed(sequences=due))
    bucket, why = None, ""
    try:
        bucket = inspect(teed, upstream, origins, now)
    except ConfigError as error:
        # A right is missing for some file; which kind of file is asked below.
        why = str(error)
    first, schemas = teed.listed.first_data_file, sorted(teed.listed.first_schema_files.values())
    return BucketFacts(
        bucket=bucket,
        why=why,
        listed=teed.listed,
        finished=finished,
        schema_file=_reading(lambda: storage.read(schemas[0])) if schemas else "",
        from_before=tuple(path for path in schemas[:_MOST_READ] if _has_no_statement(storage, path)),
        data_file=_reading(lambda: next(iter(storage.blocks(first.path, 1)), b"")) if first else "",
        upstream=upstream,
        now=now,
        checkpoint=0,
    )


def beside(facts: BucketFacts, checkpoint: int, leaves_out: Callable[[TableName], bool]) -> BucketFacts:
    """Return the same facts beside the state's checkpoint. `leaves_out`: whether a table is not replicated."""
    tables = facts.bucket.tables if facts.bucket else ()
    left_out = tuple(f"{each.directory}/" for each in tables if each.name is not None and leaves_out(each.name))
    return replace(facts, checkpoint=checkpoint, left_out=left_out)


def _has_no_statement(storage: Storage, path: str) -> bool:
    """Return whether a schema file is a table's structure, and no statement made it. Of one that cannot be read other checks tell."""
    try:
        document = json.loads(storage.read(path, SCHEMA_FILE_BYTES))
    except (ConfigError, StorageUnavailable, FileNotFoundError, FilesMissing, ValueError):
        return False
    return isinstance(document, dict) and bool(document.get("TableColumns")) and not document.get("Query")


def _reading(read: Callable[[], bytes]) -> str:
    """Return what prevents a file from being read; empty if nothing does. One that was just deleted, or is archived, proves nothing."""
    try:
        read()
    except (ConfigError, StorageUnavailable) as error:
        return str(error)
    except (FileNotFoundError, FilesMissing):
        return ""
    return ""


class _Teed:
    """A storage whose listing is heard."""

    def __init__(self, storage: Storage, finished: Mapping[str, int], listed: Listed) -> None:
        self._storage = storage
        self._finished = finished
        self.listed = listed

    def check(self) -> None:
        self._storage.check()

    def read(self, path: str, most: int = SCHEMA_FILE_BYTES) -> bytes:
        return self._storage.read(path, most)

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        return self._storage.blocks(path, size, start, tag)

    def listing(self, closed: frozenset[str], after: dict[str, str]) -> Iterator[StoredObject]:
        for stored in self._storage.listing(closed, after):
            self._see(stored)
            yield stored

    def _see(self, stored: StoredObject) -> None:
        folder, _, name = stored.path.rpartition("/")
        data, listed = parse_data_name(name), self.listed
        if not data:
            if name.startswith("schema"):
                # The version comes first in the name, and all TSOs have as many digits.
                listed.first_schema_files[folder] = min(listed.first_schema_files.get(folder, stored.path), stored.path)
            return
        listed.first_data_file = listed.first_data_file or stored
        names = [*sequence_names(folder, data)]
        sequence = next((each for each in names if each in self._finished), names[-1])
        # What is finished may have expired, and is not needed.
        if data.number <= self._finished.get(sequence, 0):
            return
        numbers = listed.sequences.setdefault(sequence, Numbers(data.number, data.number, 0))
        numbers.lowest, numbers.highest = min(numbers.lowest, data.number), max(numbers.highest, data.number)
        numbers.count += 1
