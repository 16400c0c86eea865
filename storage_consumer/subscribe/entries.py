"""Entries of a subscription: the changes of a feed, with the borders of their commits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from storage_consumer.changes.reading import Feed
from storage_consumer.changes.rendering import flat_messages
from storage_consumer.changes.window import Change, Event, FeedStatement
from storage_consumer.config.settings import Protocol, Tuning
from storage_consumer.decode.kernels.arrays import DELETE, INSERT, PARTIAL_DELETE, UPDATE
from storage_consumer.errors import ConfigError
from storage_consumer.model import MAX_TSO, TableName, physical_ms
from storage_consumer.subscribe.marks import Position

KINDS = ("insert", "update", "delete", "ddl")
_OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete", PARTIAL_DELETE: "delete"}
_TOGETHER = 100
"""Most rows of an entry."""
_ENTRY, _CELL = 400, 60
"""About how many bytes Python needs for an entry, and for a value beside its text."""


class Entry(NamedTuple):
    """The begin or end of a commit, some rows of one table and operation, or a statement."""

    kind: Literal["begin", "rows", "ddl", "end"]
    commit_ts: int
    changes: tuple[Change, ...] = ()
    statement: FeedStatement | None = None
    protocol: Protocol = "csv"
    """How the bucket writes values."""

    @property
    def time_ms(self) -> int:
        """When it committed, in milliseconds since 1970-01-01 UTC."""
        return physical_ms(self.commit_ts)

    @property
    def table(self) -> TableName | None:
        """The table of rows or of a statement."""
        if self.statement is not None:
            return self.statement.definition.name
        return self.changes[0].structure.table if self.changes else None

    @property
    def sql(self) -> str:
        """The text of a statement, else empty."""
        return "" if self.statement is None else self.statement.definition.query

    @property
    def events(self) -> tuple[Event, ...]:
        """Its rows, or its statement."""
        return self.changes if self.statement is None else (self.statement,)

    def as_flat(self) -> list[str]:
        """Return canal's flat messages, one for each row, as JSON; none for borders."""
        line = flat_messages(self.protocol, time.time)
        return [line(event) for event in self.events]

    @property
    def size(self) -> int:
        """About how many bytes it needs in memory."""
        if not self.changes:
            return _ENTRY + len(self.sql)
        first = self.changes[0]
        texts = (*first.values, *(first.old or ()))
        of_one = _CELL * len(texts) + sum(map(len, filter(None, texts)))
        return _ENTRY + len(self.changes) * of_one


Placed = tuple[Entry | None, Position | None]
"""An entry, or None where there is none for now; and the border behind it, if any is new."""
_ENDED: Placed = None, Position(-1, -1)


class Selection:
    """Which changes and statements a client gets: canal's regular expressions, and kinds."""

    def __init__(
        self, wanted: Sequence[str] = (), unwanted: str = "", kinds: Collection[str] = KINDS
    ) -> None:
        """Take filters for ``schema.table``, each of expressions apart by commas.

        A table has to match one of each filter in `wanted` that is not empty, and none of
        `unwanted`, whatever their case. `kinds`: of changes. Raises `ConfigError`.
        """
        self._wanted = [found for text in wanted if (found := _expressions(text))]
        self._unwanted = _expressions(unwanted)
        if unknown := set(kinds) - set(KINDS):
            raise ConfigError(f"{min(unknown)!r} is none of {', '.join(KINDS)}")
        self._operations = {each for each, kind in _OPERATIONS.items() if kind in kinds}
        self._ddl = "ddl" in kinds
        is_open = not self._wanted and not self._unwanted
        self._takes = (lambda _: True) if is_open else lru_cache(maxsize=4096)(self._takes_table)

    def change(self, change: Change) -> bool:
        """Return whether a change is wanted."""
        return change.operation in self._operations and self._takes(change.structure.table)

    def statement(self, statement: FeedStatement) -> bool:
        """Return whether a statement is wanted."""
        return self._ddl and self._takes(statement.definition.name)

    def _takes_table(self, name: TableName) -> bool:
        text = f"{name.schema}.{name.table}"
        if any(each.fullmatch(text) for each in self._unwanted):
            return False
        return all(any(each.fullmatch(text) for each in some) for some in self._wanted)


def _expressions(text: str) -> list[re.Pattern[str]]:
    """Return the parts of canal's filter: apart by commas that stand in no bracket."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    try:
        return [re.compile(part.strip(), re.IGNORECASE) for part in parts if part.strip()]
    except re.error as fault:
        raise ConfigError(f"filter {text!r}: {fault}") from None


def entries(
    feed: Feed,
    position: Position,
    wait: Callable[[], bool],
    selection: Selection,
    tuning: Tuning,
) -> Iterator[Placed]:
    """Yield what committed after a position, the rows of each commit between begin and end.

    Statements stand alone, behind the rows of their commit-ts. `wait`: as for `Feed.following`,
    which says what is raised.
    """
    reached, commit = feed.reached, 0
    rows: list[Change] = []
    statement: Entry | None = None
    for event in feed.following(
        position.rows,
        wait,
        selection.change,
        statements=position.statements,
        patience=tuning.gap_timeout,
        retry_limit=tuning.retry_limit,
    ):
        if event is None and feed.reached == reached:
            # Nothing is new, or the storage does not answer amid a window.
            yield None, None
            continue
        if isinstance(event, FeedStatement) and not selection.statement(event):
            continue
        ts = 0 if event is None else event.commit_ts
        if rows and not _is_one_entry(rows, event):
            yield Entry("rows", commit, tuple(rows), protocol=feed.protocol), None
            rows = []
        if commit and (ts != commit or isinstance(event, FeedStatement)):
            yield Entry("end", commit), Position(commit, commit - 1)
            commit = 0
        if statement is not None:
            # Another one may have the same commit-ts.
            own = statement.commit_ts
            yield statement, Position(own, own - (own == ts))
            statement = None
        if event is None:
            reached = feed.reached
            yield None, Position(*reached)
        elif isinstance(event, FeedStatement):
            statement = Entry("ddl", ts, statement=event, protocol=feed.protocol)
        else:
            if not commit:
                yield Entry("begin", ts), None
                commit = ts
            rows.append(event)


def _is_one_entry(rows: Sequence[Change], event: Event | None) -> bool:
    """Return whether an event is a further row of the same entry."""
    if not isinstance(event, Change) or len(rows) >= _TOGETHER:
        return False
    last = rows[-1]
    return (
        event.commit_ts == last.commit_ts
        and event.operation == last.operation
        and event.structure is last.structure
    )


def merged(sources: Sequence[Iterator[Placed]]) -> Iterator[Placed]:
    """Yield the entries of several feeds, commit by commit in the order of commit-ts.

    A commit waits until each other feed has one as late, or is complete that far.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    heads: list[Placed] = [(None, Position(0, 0))] * len(sources)
    while True:
        there = [(entry.commit_ts, at) for at, (entry, _) in enumerate(heads) if entry is not None]
        ts, first = min(there, default=(MAX_TSO, 0))
        late = [
            at
            for at, (entry, reached) in enumerate(heads)
            if entry is None and reached is not None and reached.statements < ts
        ]
        if late:
            found = [next(sources[at], _ENDED) for at in late]
            if _ENDED in found:
                return
            for at, head in zip(late, found, strict=True):
                heads[at] = heads[at] if head == (None, None) else head
            is_idle = all(entry is None for entry, _ in heads)
            places = [place for _, place in heads if place is not None]
            yield None, min(places) if is_idle else None
            continue
        # Another feed may have a commit of the same commit-ts, which is to come yet.
        before = Position(ts - 1, ts - 1) if [each for each, _ in there].count(ts) > 1 else None
        entry, place = heads[first]
        while True:
            yield entry, place and (before or place)
            if place is not None:
                break
            entry, place = next(sources[first])
        heads[first] = (None, place)
