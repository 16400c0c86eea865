"""Random histories of one table, and the files that TiCDC's habits make of them."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from storage_consumer.config.settings import CsvOptions, Protocol
from storage_consumer.model import DataFile, StoredObject, TableName, TableVersion
from tests.unit.decode.encoders import Row, canal_line, canal_message, csv_change

NAME = TableName(schema="shop", table="orders")
TABLE_DIR = "shop/orders"
START = 100
"""Version of the first directory; every change is later."""
Image = tuple[str | None, ...]
State = Counter[Image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of table. Its first column says the partition, so that an update can move a row."""

    name: str
    keys: tuple[tuple[int, ...], ...]
    """Columns of each unique key, the primary key first; none for a keyless table."""
    domains: tuple[tuple[str | None, ...], ...]
    """Values of each column after the first."""
    loose: bool = False
    """Key texts are equal by a case-insensitive collation."""

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.domains) + 1


WORDS = ("a", "A", "ä", "b1", "B1", "\uff42\uff11", "ß", "ss", "SS", "7", "\u0667", "")
"""Among them full-width b1 and an Arabic-Indic 7."""
SHAPES = (
    Shape(name="keyed", keys=((1,),), domains=(("1", "2", "3", "4", "5"), ("x", "y", "", None))),
    Shape(name="two keys", keys=((1,), (2,)), domains=(("1", "2", "3", "4"), ("1", "2", "3", None), ("x", "y"))),
    Shape(name="loose", keys=((1,),), domains=(WORDS, ("x", "y")), loose=True),
    Shape(name="loose, two columns", keys=((1, 2),), domains=(WORDS, ("1", "2"), ("x", "y")), loose=True),
    Shape(name="keyless", keys=(), domains=(("x", "y", "\\", None), ("1", "\t"))),
)


def same(text: str) -> str:
    """What a case- and accent-insensitive collation makes of a text."""
    folded = unicodedata.normalize("NFKD", text.casefold()).casefold()
    bare = "".join(sign for sign in folded if not unicodedata.combining(sign)).rstrip(" ")
    return "".join(str(unicodedata.digit(sign, sign)) for sign in bare)


# the source: transactions, and the table after each


@dataclass(slots=True)
class Source:
    """A table's history: per commit ts its changes as TiCDC orders them, and the rows afterwards."""

    shape: Shape
    transactions: list[tuple[int, list[Row]]] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)

    def at(self, ts: int) -> State:
        """The rows after everything with commit ts <= `ts`."""
        return next((self.states[t] for t in sorted(self.states, reverse=True) if t <= ts), Counter())


def keys_of(shape: Shape, row: Image) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Which places in unique indexes a row takes."""
    for number, columns in enumerate(shape.keys):
        texts = [row[place] for place in columns]
        if None not in texts:
            yield number, tuple(same(str(text)) if shape.loose else str(text) for text in texts)


def identity(shape: Shape, row: Image) -> tuple[str | None, ...]:
    """The texts of all unique keys: an update that changes one is split."""
    return tuple(row[place] for columns in shape.keys for place in columns)


@st.composite
def sources(draw: st.DrawFn, shape: Shape, whole: str) -> Source:
    """A history of up to ten transactions with up to six edits each; `whole`: which updates of keys are not split."""
    source, rows, ts = Source(shape), list[tuple[int, Image]](), START
    images = st.tuples(st.sampled_from(("0", "1")), *(st.sampled_from(domain) for domain in shape.domains))
    edits = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("IIUUD"), images), min_size=1, max_size=6)
    made = 0
    for gap, transaction in draw(st.lists(st.tuples(st.integers(1, 3), edits), max_size=10)):
        ts += gap
        before = dict(rows)
        for pick, operation, image in transaction:
            made += 1
            rows = _edited(shape, rows, (pick, operation, image), made)
        if changes := _changes(shape, before, dict(rows), ts, whole):
            source.transactions.append((ts, changes))
        source.states[ts] = Counter(image for _, image in rows)
    return source


def _edited(
    shape: Shape, rows: list[tuple[int, Image]], edit: tuple[int, str, Image], made: int
) -> list[tuple[int, Image]]:
    """The rows (with their inner numbers) after one statement; what breaks a unique key goes, as by a delete before it."""
    pick, operation, image = edit
    chosen = rows[pick % len(rows)][0] if rows and operation != "I" else None
    if operation == "D":
        return [row for row in rows if row[0] != chosen]
    taken = set(keys_of(shape, image))
    kept = [row for row in rows if row[0] == chosen or not taken & set(keys_of(shape, row[1]))]
    if chosen is None:
        return [*kept, (made, image)]
    return [(number, image if number == chosen else old) for number, old in kept]


def _changes(shape: Shape, before: dict[int, Image], after: dict[int, Image], ts: int, whole: str) -> list[Row]:
    """One change per row, in TiCDC's order: deletes, updates, inserts."""
    deletes = [Row(operation="D", values=old, ts=ts) for number, old in before.items() if number not in after]
    inserts = [Row(operation="I", values=new, ts=ts) for number, new in after.items() if number not in before]
    updates = []
    for number in before.keys() & after.keys():
        old, new = before[number], after[number]
        if old == new:
            continue
        if old[0] == new[0] and _is_whole(shape, old, new, whole):
            updates.append(Row(operation="U", values=new, old=old, ts=ts))
        else:
            deletes.append(Row(operation="D", values=old, ts=ts))
            inserts.append(Row(operation="I", values=new, ts=ts))
    return [*deletes, *updates, *inserts]


def _is_whole(shape: Shape, old: Image, new: Image, whole: str) -> bool:
    """Whether an update is one row: that of a key is split, but for the spelling of one (`spelling`), or not at all (`all`)."""
    same_key = list(keys_of(shape, old)) == list(keys_of(shape, new)) and whole == "spelling"
    return whole == "all" or bool(shape.keys and (same_key or identity(shape, old) == identity(shape, new)))


# the files: passes over the history, each from a checkpoint on


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file, as it was written."""

    file: DataFile
    content: bytes
    highest: int
    """Commit ts up to which everything is stored with this file, inclusive."""


@dataclass(slots=True)
class Sink:
    """Writes files by TiCDC's habits."""

    source: Source
    protocol: Protocol
    rng: random.Random
    border: int
    """Version of a second directory; changes after it go there."""
    is_ddl: bool
    dispatchers: bool
    options: CsvOptions
    files: list[Written] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    complete: int = START
    passes: int = 0

    def write(self) -> list[Written]:
        """Passes with restarts in between until the whole history is stored."""
        history, position, restarts = self.source.transactions, 0, self.rng.randrange(4)
        self.passes = 1
        while position < len(history) or restarts:
            if restarts and self.rng.random() < 0.5:
                restarts -= 1
                self.passes += 1
                position = self.rng.randint(max(0, position - 4), position)
            batch = history[position : position + self.rng.randint(1, 4)]
            position += len(batch)
            self._flush([row for _, rows in batch for row in rows])
            if batch and batch[-1][0] > self.complete:
                self.complete = batch[-1][0]
                self.files[-1] = replace(self.files[-1], highest=self.complete)
        return self.files

    def _flush(self, rows: list[Row]) -> None:
        """One flush: per directory and dispatcher a file, or two where a file grew too large."""
        placed = [(self._place(row), row) for row in rows]
        for place in sorted({place for place, _ in placed}):
            mine = [row for at, row in placed if at == place]
            cut = self._cut(mine)
            for part in filter(None, (mine[:cut], mine[cut:])):
                self._store(place, part)

    def _place(self, row: Row) -> tuple[int, int, str]:
        """(version, partition, dispatcher) of a change; a restarted TiCDC puts all into the newest directory."""
        late = row.ts > self.border or (self.complete > self.border and self.passes > 1)
        half = str(sum(map(ord, "".join(map(str, row.values)))) % 2 + 2 * self.passes) if self.dispatchers else ""
        return (self.border if late else START, int(str(row.values[0])), half)

    def _cut(self, rows: list[Row]) -> int:
        """Where a file ends early. A keyless transaction is cut only where the parts tell that they are parts."""
        cut = self.rng.randint(0, len(rows))
        if self.source.shape.keys or not 0 < cut < len(rows) or rows[cut - 1].ts != rows[cut].ts:
            return cut
        ts = rows[cut].ts
        head, tail = (Counter(events(part, ts)) for part in (rows[:cut], rows[cut:]))
        return cut if not head <= tail and not tail <= head and not self.dispatchers else 0

    def _store(self, place: tuple[int, int, str], rows: Sequence[Row]) -> None:
        version, partition, dispatcher = place
        folder = f"{TABLE_DIR}/{version}/{partition}"
        sequence = f"{folder}|{dispatcher}"
        self.numbers[sequence] += 1
        number = self.numbers[sequence]
        stem = f"CDC_{dispatcher}_{number:020d}" if dispatcher else f"CDC{number:020d}"
        content = "".join(self._line(row) for row in rows).encode()
        stored = StoredObject(path=f"{folder}/{stem}.{self.protocol}", size=len(content), tag="1")
        file = DataFile(
            stored=stored,
            table_dir=TABLE_DIR,
            version=TableVersion(version),
            partition=partition,
            date="",
            dispatcher=dispatcher,
            number=number,
            width=20,
        )
        self.files.append(Written(file=file, content=content, highest=self.complete))

    def _line(self, row: Row) -> str:
        kinds = ["VARCHAR"] * self.source.shape.width
        if self.protocol == "csv":
            return csv_change(kinds, row, self.options)
        return canal_line(canal_message(kinds, row))


def events(rows: Sequence[Row], ts: int) -> Iterator[tuple[str, Image]]:
    """Deletes and inserts with one commit ts; an update is one of each."""
    for row in (row for row in rows if row.ts == ts):
        if row.old is not None:
            yield "D", tuple(map(str, row.old))
        yield "D" if row.operation == "D" else "I", tuple(map(str, row.values))
