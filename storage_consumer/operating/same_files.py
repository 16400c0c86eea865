"""Compare a place with the files that were read elsewhere: a copy has other times and, as stores cut uploads, perhaps other tags.

Schema files are compared by their content. Each names a version, which is a TSO of the source, so another changefeed has none of them; all
that were read must exist. Of each numbered sequence, the last finished file is looked for; older ones may have expired, so a missing one
proves nothing. Every finished file with a stored digest must have the same size; see `same_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from storage_consumer.checkpoint.operator_feed import KeptFile
from storage_consumer.checkpoint.structures import record_of
from storage_consumer.errors import MalformedSchemaFile
from storage_consumer.operating.same_sizes import SHOWN, Sizes
from storage_consumer.plan.finished_files import Finished
from storage_consumer.poll.schema_file import parse_schema_file
from storage_consumer.storage.base import Storage
from storage_consumer.storage.paths import SchemaPath, parse_other
from storage_consumer.storage.small_file import read_schema_file

MOST_READ = 2_000
"""Number of schema files, the newest ones, that are read. Others only have to exist: the name has version and checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is the same at the other place, and what is not."""

    read: int
    """Schema files that were read there and say the same."""
    named: int
    """Schema files that exist there by name but were not read."""
    missing: tuple[str, ...]
    """Paths of schema files that do not exist there."""
    different: tuple[str, ...]
    """Paths of schema files, each with its difference."""
    sizes: Sizes
    """Findings of the data files' sizes."""

    @property
    def proves(self) -> bool:
        """Whether anything shows that it is the same changefeed."""
        return bool(self.read or self.named or self.sizes.there)


def compared(storage: Storage, kept: list[KeptFile], streams: Mapping[str, Finished]) -> Comparison:
    """Compare what is known of a bucket with the content of another place; `FeedInspector` provides what is known."""
    wanted, there, sizes = {file.path for file in kept}, set[str](), Sizes(streams)
    for stored in storage.listing(frozenset(), {}):
        if stored.path in wanted:
            there.add(stored.path)
        sizes.see(stored)
    known = [file for file in kept if file.path in there]
    different = tuple(path for file in known[:MOST_READ] if (path := _difference(storage, file)))
    return Comparison(
        read=min(len(known), MOST_READ) - len(different),
        named=max(0, len(known) - MOST_READ),
        missing=tuple(file.path for file in kept if file.path not in there),
        different=different,
        sizes=sizes,
    )


def _difference(storage: Storage, file: KeptFile) -> str:
    """Return how a schema file differs from what was stored of it; empty if it does not."""
    parsed = parse_other(file.path)
    checksum = parsed.checksum if isinstance(parsed, SchemaPath) else None
    try:
        content = read_schema_file(storage, file.path)
        definition = parse_schema_file(content, file.path, file.version, checksum, table_dir=file.table_dir)
    except FileNotFoundError:
        return f"{file.path}: it was listed but is gone"
    except MalformedSchemaFile as fault:
        return str(fault)
    same = record_of(file.table_dir, definition)["digest"] == file.digest
    return "" if same else f"{file.path}: its statement or structure differs from what was read"


def shortened(paths: Iterable[str], count: int = 0) -> str:
    """Return the first paths as lines, and a count of the others; `count` is the total if `paths` has not all of them."""
    found = list(paths)
    shown, count = found[:SHOWN], max(count, len(found))
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return "".join(f"\n  {path}" for path in (*shown, *more))
