"""Corpora: recorded buckets with the true content of the source beside them.

A corpus is a folder (or a ``.tar.xz`` of one) with ``corpus.json``, ``tree/`` (the bucket after the last cut),
``golden/CHECKPOINT_TS/`` (what the source held at each cut) and ``workload.sql``. A *cut* is a moment at which the
recording was stopped: the files that existed then, and the checkpoint that ``metadata`` said.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
METADATA = "metadata"
ARCHIVE = ".tar.xz"
ARCHITECTURES = ("classic", "new")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One moment of a recording."""

    number: int
    """From 0."""
    checkpoint_ts: int
    files: Mapping[str, int]
    """Path in the bucket → size in bytes, of every object that existed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenColumn:
    """A column as SHOW COLUMNS told it at the source."""

    name: str
    type: str
    nullable: bool
    key: str
    """``PRI``, ``UNI``, ``MUL`` or empty."""
    extra: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenTable:
    """What the source held in one table."""

    schema: str
    table: str
    types: Mapping[str, str]
    """Column name → type as SHOW COLUMNS says it, in table order."""
    primary_key: tuple[str, ...]
    generated: frozenset[str]
    """Generated columns."""
    columns: tuple[GoldenColumn, ...] = ()
    """In table order."""
    path: Path
    """One JSON array a line and row: null, text, or ``{"b64": …}`` for bytes."""

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table}"

    def rows(self) -> Iterator[list[Any]]:
        """The rows as the file has them."""
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


class Corpus:
    """One recorded bucket."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds ``corpus.json``."""
        self.folder = folder
        self._facts: dict[str, Any] = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))

    def __str__(self) -> str:
        """Like ``new/shop__csv``."""
        return f"{self.arch}/{self.workload}__{self.variant}"

    @property
    def workload(self) -> str:
        """What the source did: ``shop``, ``types`` …"""
        return str(self._facts["workload"])

    @property
    def variant(self) -> str:
        """How TiCDC was told to write it: ``csv``, ``json`` …"""
        return str(self._facts["variant"])

    @property
    def arch(self) -> str:
        """Which TiCDC wrote it: ``classic`` or ``new``."""
        return str(self._facts["arch"])

    @property
    def timezone(self) -> str:
        """TiCDC's ``--tz``."""
        return str(self._facts["timezone"])

    @property
    def changefeed_toml(self) -> str:
        """The changefeed's configuration."""
        return str(self._facts["changefeed_toml"])

    @cached_property
    def workload_sql(self) -> str:
        """The statements that the source executed, with ``-- cut`` where there is one."""
        return (self.folder / "workload.sql").read_text(encoding="utf-8")

    @property
    def expected_loss(self) -> bool:
        """TiCDC overwrote files of this bucket itself, so that rows are missing from it."""
        return bool(self._facts.get("expected_loss"))

    @cached_property
    def cuts(self) -> tuple[Cut, ...]:
        """In order."""
        return tuple(
            Cut(number=number, checkpoint_ts=cut["checkpoint_ts"], files=cut["files"])
            for number, cut in enumerate(self._facts["cuts"])
        )

    def sink_uri(self, bucket: Path) -> str:
        """TiCDC's ``--sink-uri`` for this corpus, with `bucket` as the place."""
        return str(self._facts["sink_uri"]).replace("file:///TREE", bucket.resolve().as_uri(), 1)

    def write_config(self, folder: Path) -> Path:
        """The changefeed's configuration as a file in `folder`."""
        path = folder / "changefeed.toml"
        path.write_text(self.changefeed_toml, encoding="utf-8")
        return path

    def materialise(self, cut: Cut, bucket: Path) -> None:
        """Make `bucket` hold what existed at `cut`; files that are there already stay untouched.

        All files but ``metadata`` and the index files are written once and never change; those two kinds are as they
        were at that cut. Where TiCDC overwrote a file, only its last content is known: before that, the same lines twice
        stand in for it.
        """
        for path in cut.files:
            target = bucket / path
            if path.endswith(".index") or (path != METADATA and self.expected_loss):
                write_at_once(target, self.content(path, cut))
            elif path != METADATA and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / "tree" / path, target)
        self.set_checkpoint(bucket, cut)

    def content(self, path: str, cut: Cut) -> bytes:
        """What an object held at `cut`."""
        if path == METADATA:
            return json.dumps({"checkpoint-ts": cut.checkpoint_ts}, separators=(",", ":")).encode()
        if path.endswith(".index"):
            return _index_content(path, cut).encode()
        content = (self.folder / "tree" / path).read_bytes()
        return content * 2 if self.expected_loss and cut.files[path] != len(content) else content

    def set_checkpoint(self, bucket: Path, cut: Cut) -> None:
        """Make the bucket's ``metadata`` say the checkpoint of `cut`."""
        write_at_once(bucket / METADATA, self.content(METADATA, cut))

    def golden(self, cut: Cut) -> tuple[GoldenTable, ...]:
        """What the source held at `cut`."""
        folder = self.folder / "golden" / str(cut.checkpoint_ts)
        return tuple(
            GoldenTable(
                schema=table["schema"],
                table=table["table"],
                types={column["name"]: column["type"] for column in table["columns"]},
                primary_key=tuple(table["primary_key"] or ()),
                generated=frozenset(c["name"] for c in table["columns"] if c.get("extra", "").endswith(" GENERATED")),
                columns=tuple(
                    GoldenColumn(**{"key": "", "extra": "", "nullable": True} | column) for column in table["columns"]
                ),
                path=folder / table["file"],
            )
            for table in json.loads((folder / "tables.json").read_text(encoding="utf-8"))
        )


def write_at_once(path: Path, content: str | bytes) -> None:
    """Write a small file so that a reader sees the old content or the new one; one that has this content stays untouched."""
    if isinstance(content, str):
        content = content.encode()
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.replace(path)


def _index_content(index: str, cut: Cut) -> str:
    """An index file names the last data file of its directory and dispatcher, and ends with a newline.

    It lies in ``meta/`` below the data files; TiCDC 6.5.2 and 7.0.0 put it beside them.
    """
    path = PurePosixPath(index)
    folder, stem = str(path.parent.parent if path.parent.name == "meta" else path.parent), path.stem
    names = [PurePosixPath(name).name for name in cut.files if str(PurePosixPath(name).parent) == folder]
    digits = {name: name.removeprefix(stem).lstrip("_").partition(".")[0] for name in names if name.startswith(stem)}
    return max((int(number), name) for name, number in digits.items() if number.isdigit())[1] + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource:
    """Where a corpus is kept: a folder, or an archive of one. Its names are told by the path alone."""

    path: Path
    """``…/ARCH/…/WORKLOAD__VARIANT`` or the same with ``.tar.xz``."""

    @property
    def folder_name(self) -> str:
        """``WORKLOAD__VARIANT``."""
        return self.path.name.removesuffix(ARCHIVE)

    @property
    def arch(self) -> str:
        """``classic`` or ``new``."""
        return next(part for part in reversed(self.path.parts) if part in ARCHITECTURES)

    @property
    def workload(self) -> str:
        """What the source did."""
        return self.folder_name.partition("__")[0]

    @property
    def variant(self) -> str:
        """How TiCDC was told to write it."""
        return self.folder_name.partition("__")[2]

    def __str__(self) -> str:
        """Like ``new/shop__csv``."""
        return f"{self.arch}/{self.folder_name}"

    def open(self, scratch: Path) -> Corpus:
        """The corpus; an archive is unpacked below `scratch` first, once."""
        if not self.path.name.endswith(ARCHIVE):
            return Corpus(self.path)
        folder = scratch / self.arch / self.folder_name
        if not (folder / "corpus.json").exists():
            with tarfile.open(self.path) as tar:
                # Python 3.11.3 and older know no filter.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(folder.parent)  # noqa: S202 - an archive of this repository
        return Corpus(folder)


THOROUGH = bool(os.environ.get("STORAGE_CONSUMER_THOROUGH"))
"""Whether every variant and every way of delivery is tried, as at night; otherwise some of each workload."""


def root() -> Path:
    """Where corpora are: ``$STORAGE_CONSUMER_CORPORA``, else ``fixtures/``."""
    return Path(os.environ.get("STORAGE_CONSUMER_CORPORA") or FIXTURES)


def available(folder: Path | None = None) -> tuple[CorpusSource, ...]:
    """All corpora below `folder` (default: `root`), by name."""
    below = folder or root()
    paths = [path.parent for path in below.rglob("corpus.json")] + list(below.rglob(f"*{ARCHIVE}"))
    return tuple(sorted((CorpusSource(path=path) for path in paths), key=str))


def chosen(
    corpora: tuple[CorpusSource, ...],
    *,
    workloads: tuple[str, ...] = (),
    variants: tuple[str, ...] = (),
    archs: tuple[str, ...] = (),
) -> tuple[CorpusSource, ...]:
    """Those of the given workloads, variants and architectures; an empty tuple means any."""
    wanted = ((workloads, "workload"), (variants, "variant"), (archs, "arch"))
    return tuple(
        corpus for corpus in corpora if all(not names or getattr(corpus, what) in names for names, what in wanted)
    )
