"""A recorded bucket as it might have come as well: the same rows, cut, repeated, delayed and told otherwise. No server, no I/O but reading.

Only what TiCDC may do to a bucket is done (format sheet 2): rows of a sequence keep their order; what is written again after a restart
begins at any row that begins a commit ts and is written to files with higher numbers; where a file ends is any row of a table with a
primary key, and else the end of a commit ts; a file can be listed long before the checkpoint covers it, the files of different
sequences in any order, those of one sequence by number, a table's schema files by version, as its statements run; an index names any file before the last or is not there at all.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath

from tests.harness.corpora import METADATA, Corpus

VARIANTS = (
    "csv,csv-small,csv-hex,csv-old,csv-plain,csv-restart,csv-handle,csv-shanghai,ddl-at-checkpoint,json,json-year,json-none,json-cc,"
    "json-restart,json-shanghai,nodes-csv,nodes-json,tableid-csv"
)
"""Those whose rows are found by looking for the terminator outside quotes, and that lie in one directory per version and partition."""
CUT_ANYWHERE = frozenset({"csv", "csv-small", "json", "nodes-csv", "nodes-json"})
"""Those of which one event is one row."""
_END = b"\r\n"
_DATA_FILE = re.compile(r"^(?P<prefix>CDC(?:_[0-9a-f]+_)?)(?P<number>\d+)\.(?P<kind>csv|json)$")
_CSV_TS = re.compile(rb'^"[IUD]","(?:[^"]|"")*","(?:[^"]|"")*",(\d+)')
_PASSES = 2
"""At most so many restarts write something of a sequence again."""

Line = tuple[int, bytes]
"""Commit ts, and the row as it is written, without its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One object of the shuffled bucket."""

    path: str
    content: bytes
    cut: int
    """Number of the first cut at which it can be listed."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was done."""

    files: int = 0
    """Data files of the shuffled buckets."""
    rows: int = 0
    repeated: int = 0
    """Rows of these that are there for the second or third time."""
    delayed: int = 0
    """Data files that could be listed before they had to be."""
    stale: int = 0
    """Index files that name an earlier file, or are not there."""

    def add(self, other: Counts) -> None:
        """Sum up."""
        for name in Counts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSequence:
    """The data files of one directory and dispatcher, by number."""

    folder: str
    prefix: str
    kind: str
    digits: int
    """Width of the numbers."""
    files: tuple[bytes, ...]

    def path(self, number: int) -> str:
        """Where file `number` (from 1) lies."""
        return f"{self.folder}/{self.prefix}{number:0{self.digits}d}.{self.kind}"


@dataclass(slots=True, kw_only=True)
class Shuffled:
    """A corpus in another delivery."""

    corpus: Corpus
    dice: random.Random
    counts: Counts = field(default_factory=Counts)

    def objects(self) -> list[Placed]:
        """Every object but ``metadata``, with the cut from which on it is there."""
        first = self._first_cuts()
        found = sequences_of(self.corpus, first)
        placed = [one for sequence in found for one in self._sequence(sequence)]
        told = {
            METADATA,
            *(sequence.path(number) for sequence in found for number in range(1, len(sequence.files) + 1)),
        }
        others = {path: cut for path, cut in first.items() if path not in told and not path.endswith(".index")}
        return [*placed, *self._others(others)]

    def _others(self, cuts: Mapping[str, int]) -> Iterator[Placed]:
        """Schema files, with the cuts by which they must be there; those of one directory come in the sequence of their versions."""
        latest: dict[str, int] = {}
        for path, cut in sorted(cuts.items()):
            folder = path.rpartition("/")[0]
            earliest = min(cut, latest.get(folder, 0))
            latest[folder] = self.dice.randint(earliest, cut) if self.dice.random() < 0.3 else cut
            yield Placed(path=path, content=self._content(path), cut=latest[folder])

    def _first_cuts(self) -> dict[str, int]:
        """Path → number of the first cut at which the file was there."""
        first: dict[str, int] = {}
        for cut in self.corpus.cuts:
            for path in cut.files:
                first.setdefault(path, cut.number)
        return first

    def _content(self, path: str) -> bytes:
        return (self.corpus.folder / "tree" / path).read_bytes()

    def _sequence(self, sequence: RecordedSequence) -> Iterator[Placed]:
        """One sequence's files, cut and repeated anew, and its index."""
        recorded = [lines_of(content, sequence.kind) for content in sequence.files]
        lines = [line for file in recorded for line in file]
        joints = _joints(recorded)
        passes = self._passes(lines)
        bounds = [bound for first, last in passes for bound in self._bounds(lines, first, last, sequence, joints)]
        files = [lines[start:end] for start, end in bounds]
        needed = self._needed(files)
        at = 0
        for number, (rows, latest) in enumerate(zip(files, needed, strict=True), 1):
            at = self.dice.randint(at, latest) if self.dice.random() < 0.5 else max(at, latest)
            self.counts.delayed += at < latest
            yield Placed(path=sequence.path(number), content=b"".join(row + _END for _, row in rows), cut=at)
        self.counts.files += len(files)
        self.counts.rows += sum(map(len, files))
        self.counts.repeated += sum(map(len, files)) - len(lines)
        yield from self._index(sequence, len(files), at)

    def _passes(self, lines: Sequence[Line]) -> list[tuple[int, int]]:
        """Which rows are written one after another: all, and some again from before a restart, which goes on to the end or breaks off."""
        starts = [n for n, (ts, _) in enumerate(lines) if n == 0 or lines[n - 1][0] != ts]
        found, reached = [], 0
        for _ in range(self.dice.choice((0, 0, 1, 1, _PASSES))):
            end = self.dice.choice([*starts, len(lines)])
            if end > reached:
                found.append((self.dice.choice([n for n in starts if n <= reached]), end))
                reached = end
        found.append((self.dice.choice([n for n in starts if n <= reached]), len(lines)))
        if self.dice.random() < 0.3:
            begin = self.dice.choice(starts)
            found.append((begin, self.dice.choice([n for n in [*starts, len(lines)] if n > begin])))
        return found

    def _bounds(
        self, lines: Sequence[Line], first: int, last: int, sequence: RecordedSequence, joints: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        """Where the files of one pass begin and end."""
        anywhere = self.corpus.variant in CUT_ANYWHERE and self._has_primary_key(sequence)
        inside = [n for n in range(first + 1, last) if anywhere or lines[n - 1][0] != lines[n][0]]
        most = min(len(inside), 2 * len(sequence.files))
        chosen = self.dice.sample(inside, self.dice.randint(0, most))
        return pairwise(sorted({first, *chosen, *(n for n in joints if first < n < last), last}))

    def _has_primary_key(self, sequence: RecordedSequence) -> bool:
        """Whether every schema file of the table's directory tells a primary key."""
        parts = PurePosixPath(sequence.folder).parts
        metas = {"/".join(parts[:n]) + "/meta/schema_" for n in range(1, len(parts))}
        known = [path for path in self.corpus.cuts[-1].files if any(path.startswith(meta) for meta in metas)]
        tables = [json.loads(self._content(path)) for path in known]
        return all(
            any(c.get("ColumnIsPk") == "true" for c in table["TableColumns"] or ())
            for table in tables
            if table["Table"]
        )

    def _needed(self, files: Sequence[Sequence[Line]]) -> list[int]:
        """Per file the last cut by which it must be there, for the sake of its own rows or those of a later file."""
        last = self.corpus.cuts[-1].number
        seen: set[Line] = set()
        needed = []
        for rows in files:
            new = [ts for ts, row in rows if (ts, row) not in seen]
            seen.update(rows)
            needed.append(min((self._covering(ts) for ts in new), default=last))
        for n in range(len(needed) - 2, -1, -1):
            needed[n] = min(needed[n], needed[n + 1])
        return needed

    def _covering(self, ts: int) -> int:
        """The first cut whose checkpoint covers a commit ts; the last one if none does."""
        cuts = self.corpus.cuts
        return next((cut.number for cut in cuts if ts <= cut.checkpoint_ts), cuts[-1].number)

    def _index(self, sequence: RecordedSequence, files: int, cut: int) -> Iterator[Placed]:
        """The index at the end, which may be behind or missing."""
        if (named := self.dice.randint(0, files)) < files:
            self.counts.stale += 1
        if named:
            name = PurePosixPath(sequence.path(named)).name
            index = f"{sequence.folder}/meta/{sequence.prefix.rstrip('_')}.index"
            yield Placed(path=index, content=f"{name}\n".encode(), cut=cut)


def _joints(files: Sequence[Sequence[Line]]) -> list[int]:
    """Where, in all rows together, a recorded file begins that may repeat what is before: no file holds a delivery twice."""
    joints, rows = [], 0
    for before, file in pairwise(files):
        rows += len(before)
        if before and file and file[0][0] <= before[-1][0]:
            joints.append(rows)
    return joints


def sequences_of(corpus: Corpus, paths: Mapping[str, int]) -> list[RecordedSequence]:
    """The sequences of a bucket, by directory and dispatcher."""
    groups = defaultdict[tuple[str, str, str], list[tuple[int, int, str]]](list)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if found := _DATA_FILE.match(name):
            groups[folder, found["prefix"], found["kind"]].append((int(found["number"]), len(found["number"]), path))
    tree = corpus.folder / "tree"
    return [
        RecordedSequence(
            folder=folder,
            prefix=prefix,
            kind=kind,
            digits=max(width for _, width, _ in files),
            files=tuple((tree / path).read_bytes() for _, _, path in sorted(files)),
        )
        for (folder, prefix, kind), files in sorted(groups.items())
    ]


def lines_of(content: bytes, kind: str) -> list[Line]:
    """The rows of a file; a quoted field may hold what ends a row."""
    lines: list[bytes] = []
    open_quote = False
    for part in content.removesuffix(_END).split(_END):
        if open_quote:
            lines[-1] += _END + part
        else:
            lines.append(part)
        open_quote = kind == "csv" and lines[-1].count(b'"') % 2 == 1
    return [(_commit_ts(line, kind), line) for line in lines]


def _commit_ts(line: bytes, kind: str) -> int:
    if kind == "json":
        return int(json.loads(line)["_tidb"]["commitTs"])
    found = _CSV_TS.match(line)
    if found is None:
        message = f"no commit ts in {line[:80]!r}"
        raise ValueError(message)
    return int(found[1])
