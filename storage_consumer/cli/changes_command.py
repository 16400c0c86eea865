"""The command `changes`: print what happened, in commit order, each change once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from storage_consumer.changes import render_sql
from storage_consumer.changes.reading import Feed, Wanted
from storage_consumer.changes.render_sql import undone
from storage_consumer.changes.rendering import (
    OfKey,
    Whole,
    debezium_envelopes,
    flat_messages,
    json_lines,
    key_values,
)
from storage_consumer.changes.window import Contents, Event, refuse_none
from storage_consumer.cli import screen
from storage_consumer.cli.endings import Answer, print_error
from storage_consumer.cli.verbs import ChangesFlags
from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Upstream
from storage_consumer.decode.csv_dialect import caveat
from storage_consumer.errors import ConfigError
from storage_consumer.plan.table_words import named
from storage_consumer.session import Session

_FRAMES = {"sql": (render_sql.HEAD, ""), "undo-sql": (render_sql.UNDO_HEAD, render_sql.UNDO_FOOT)}
"""Format → what a script in it begins and ends with."""
_UNMATCHED = (
    "--key {!r}: no change of the window is of that row. Give each value as --format json prints it (bytes also in hexadecimal digits after 0x), "
    "those of several columns in the order of the table's columns; texts are compared by their bytes, also where the column's collation ignores case"
)
_BEYOND = "nothing is known from --from on yet: the bucket is complete up to {} only, and --follow waits for more"
_NOT_YET = "the bucket has no table {} yet: --follow waits for it, and `storage-consumer inspect` lists those that there are"
_TOGETHER = 500
"""Lines that are written at once."""


def answer_changes(own: ChangesFlags, session: Session) -> Answer:
    """Print the changes of a bucket; the answer itself is empty.

    Raises `ConfigError` for wrong arguments, before anything is written, and what `Feed` raises;
    all lines before it have been written.
    """
    form, high = own.format or "json", own.to
    if own.follow and (high is not None or form == "undo-sql"):
        raise ConfigError(
            "--follow goes on for ever: give neither --to nor --format undo-sql with it"
        )
    if own.key and not own.table:
        raise ConfigError("--key is the primary key of a row of --table: give that too")
    if form == "undo-sql" and own.from_ is None:
        raise ConfigError(
            "--format undo-sql takes back what happened in a window: say with --from where that begins"
        )
    if high is not None and high < (own.from_ or 1):
        raise ConfigError(f"--to {high} is before --from {own.from_}")
    # Both are inclusive on the command line.
    low = max(0, (own.from_ or 1) - 1)
    loaded, storage = session.open_bucket()
    upstream = loaded.config.upstream
    rules = loaded.config.selecting.rules
    only = named("--table", own.table) if own.table else None
    feed = Feed(storage, upstream, SystemClock(), rules, only)
    of_key = OfKey(key_values(own.key), upstream.protocol) if own.key else None
    wanted: Wanted = of_key or (lambda _: True)
    if own.follow:
        line, tuning, notes = (
            _line(form, upstream),
            loaded.config.tuning,
            _notes(feed.contents, own.table, low),
        )

        def wait() -> bool:
            while (note := next(notes)) is not None:
                print_error(note)
            time.sleep(tuning.flush_interval)
            return True

        followed = feed.following(
            low, wait, wanted, patience=tuning.gap_timeout, retry_limit=tuning.retry_limit
        )
        lines = (None if event is None else line(event) for event in followed)
        with suppress(KeyboardInterrupt):
            _print(_framed(form, lines), session.environ)
        return Answer("")
    window = feed.window(low, high)
    refuse_none(feed.contents, own.table, rules)
    if low >= feed.contents.checkpoint:
        print_error(_BEYOND.format(feed.contents.checkpoint))
    ordered = feed.ordered(window, Whole(of_key) if of_key and form == "undo-sql" else wanted)
    if form == "undo-sql":
        texts: Iterable[str] = undone(
            window, ordered.events(), feed.contents.definitions, upstream.protocol
        )
    else:
        texts = map(_line(form, upstream), ordered.events())
    _print(_framed(form, texts), session.environ)
    for warning in filter(None, (*ordered.notes, *feed.contents.warnings, caveat(upstream))):
        print_error(warning)
    if of_key is not None and not of_key.has_matched:
        print_error(_UNMATCHED.format(own.key))
    return Answer("")


def _line(form: str, upstream: Upstream) -> Callable[[Event], str]:
    """Return the function from an event to its line; not for `undo-sql`."""
    if form == "json":
        return json_lines(upstream.protocol)
    if form == "sql":
        return render_sql.statements(upstream.protocol, upstream.time_zone)
    return (flat_messages if form == "flat" else debezium_envelopes)(upstream.protocol, time.time)


def _framed(form: str, lines: Iterable[str | None]) -> Iterator[str | None]:
    """Yield a script's lines with head and foot, from the first one on: errors leave no head."""
    head, foot = _FRAMES.get(form, ("", ""))
    rest = iter(lines)
    first = next(rest, None)
    yield head.rstrip("\n") or None
    yield first
    yield from rest
    yield foot.rstrip("\n") or None


def _notes(contents: Contents, table: str | None, low: int) -> Iterator[str | None]:
    """Yield a followed bucket's oddities, each once, and None after each poll.

    What is missing comes after the first one.
    """
    told, is_first = 0, True
    while True:
        warnings = contents.warnings[told:]
        told += len(warnings)
        yield from warnings
        if is_first and contents.checkpoint:
            is_first = False
            if table is not None and not contents.has_tables:
                yield _NOT_YET.format(table)
            if low >= contents.checkpoint:
                yield _BEYOND.format(contents.checkpoint)
        yield None


def _print(lines: Iterable[str | None], environ: Mapping[str, str]) -> None:
    """Write lines, many at once, at each None the pending ones; end when no reader is left."""
    held: list[str] = []

    def is_read() -> bool:
        text = "".join(held)
        held.clear()
        return not text or screen.write(text, environ, is_document=True)

    try:
        for line in lines:
            held += [] if line is None else [f"{line}\n"]
            if (line is None or len(held) >= _TOGETHER) and not is_read():
                return
    finally:
        # Also what came before an error.
        is_read()
