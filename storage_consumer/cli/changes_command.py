"""The command `changes`: print what happened, in commit order, each change once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from storage_consumer.cli import screen
from storage_consumer.cli.answer import Answer
from storage_consumer.clock import SystemClock
from storage_consumer.config.load import Loaded
from storage_consumer.config.settings import Tuning, Upstream
from storage_consumer.errors import ConfigError
from storage_consumer.feed import render_sql
from storage_consumer.feed.keys import OfKey, Whole, key_values
from storage_consumer.feed.reading import Feed, Wanted
from storage_consumer.feed.records import Event
from storage_consumer.feed.render_debezium import debezium_envelopes
from storage_consumer.feed.render_flat import flat_messages
from storage_consumer.feed.render_json import json_lines
from storage_consumer.instants import parse_instant
from storage_consumer.model import MAX_TSO
from storage_consumer.operating.opened_bucket import opened_bucket
from storage_consumer.plan.table_words import parsed
from storage_consumer.sql.tokens import quote
from storage_consumer.telemetry import redact

_OWN = ("table", "key", "from", "to", "follow", "format")
_FORMATS = ("json", "sql", "undo-sql", "flat", "debezium")
_UNMATCHED = (
    "--key {!r}: no change of the window is of that row. Give each value as --format json prints it (bytes also in hexadecimal digits after 0x), "
    "those of several columns in the order of the table's columns; texts are compared by their bytes, also where the column's collation ignores case"
)
_AHEAD = "--from lies ahead: the bucket is complete up to {} so far, and what comes from --from on is printed as soon as it is complete"
_BEYOND = "nothing is known from --from on yet: the bucket is complete up to {} only, and --follow waits for more"
_TOGETHER = 500
"""Lines that are written at once."""


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Print the changes of a bucket; the answer itself is empty.

    Raises `ConfigError` for wrong arguments, and what `Feed` raises; all lines before it have been written.
    """
    own = {name: str(options[name]) for name in _OWN if options.get(name) is not None}
    low, high, form = _checked(own)
    given = {name: value for name, value in options.items() if name not in own}
    loaded, storage = opened_bucket(given, environ, time.time())
    upstream = loaded.config.upstream
    feed = Feed(storage, upstream, SystemClock(), _rules(own, loaded))
    of_key = OfKey(key_values(own["key"]), upstream.protocol) if "key" in own else None
    wanted: Wanted = of_key or (lambda _: True)
    write = partial(screen.write, environ=environ, is_document=True)
    # Before anything is printed: a script has a head, and whoever follows waits for ever.
    upto = feed.upto(high)
    _look_out(feed, own, low, environ)
    if form == "undo-sql":
        events, altered = render_sql.altered_since(
            feed.within(feed.contents.window(low, upto), Whole(of_key) if of_key else wanted),
            feed.contents.statements(upto, MAX_TSO),
        )
        lines = render_sql.undone(events, upstream.protocol)
        _print([*(f"-- {each}" for each in altered), render_sql.UNDO_HEAD, *lines, render_sql.UNDO_TAIL], write)
        _complain(altered, environ)
    else:
        line = _renderer(form, upstream)
        if form == "sql":
            write(render_sql.HEAD)
        if "follow" in own:
            with suppress(KeyboardInterrupt):
                _print(_followed(feed, low, wanted, line, loaded.config.tuning, environ), write)
            return Answer("")
        _print(map(line, feed.within(feed.contents.window(low, upto), wanted)), write)
    unmatched = [_UNMATCHED.format(own["key"])] if of_key is not None and not of_key.has_matched else []
    _complain([*feed.contents.warnings, *unmatched], environ)
    return Answer("")


def _look_out(feed: Feed, own: Mapping[str, str], low: int, environ: Mapping[str, str]) -> None:
    """Say what of the wanted is not there yet; raise `ConfigError` where that is the table, and nobody waits for it."""
    complete = feed.contents.checkpoint
    follows = "follow" in own
    if "table" in own:
        try:
            feed.contents.refuse_none(own["table"])
        except ConfigError as fault:
            if not follows:
                raise
            _complain([f"{fault}. It is printed as soon as it comes"], environ)
    if low >= complete:
        _complain([(_AHEAD if follows else _BEYOND).format(complete)], environ)


def _complain(texts: Iterable[str], environ: Mapping[str, str]) -> None:
    for text in texts:
        screen.complain(f"storage-consumer: {redact(text)}", environ)


def _renderer(form: str, upstream: Upstream) -> Callable[[Event], str]:
    """Return the function from an event to its line."""
    render: dict[str, Callable[[], Callable[[Event], str]]] = {
        "json": lambda: json_lines(upstream.protocol),
        "sql": lambda: render_sql.statements(upstream.protocol, upstream.time_zone),
        "flat": lambda: flat_messages(upstream.protocol, time.time),
        "debezium": lambda: debezium_envelopes(upstream.protocol, time.time),
    }
    return render[form]()


def _checked(own: Mapping[str, str]) -> tuple[int, int | None, str]:
    """Return the borders, the first exclusive and the last inclusive or None, and the format."""
    form = own.get("format", "json")
    if form not in _FORMATS:
        raise ConfigError(f"--format {form!r}: one of {', '.join(_FORMATS)} is expected")
    if "follow" in own and ("to" in own or form == "undo-sql"):
        raise ConfigError("--follow goes on for ever: give neither --to nor --format undo-sql with it")
    if "key" in own and "table" not in own:
        raise ConfigError("--key is the primary key of a row of --table: give that too")
    if form == "undo-sql" and "from" not in own:
        raise ConfigError("--format undo-sql takes back what happened in a window: say with --from where that begins")
    borders = {}
    for name in ("from", "to"):
        if name in own:
            try:
                borders[name] = parse_instant(own[name], is_end=name == "to")
            except ValueError as fault:
                raise ConfigError(f"--{name}: {fault}") from None
    low, high = borders.get("from", 1), borders.get("to")
    if high is not None and high < low:
        raise ConfigError(f"--to {own['to']} is before --from {own['from']}")
    # Both are inclusive on the command line.
    return max(0, low - 1), high, form


def _rules(own: Mapping[str, str], loaded: Loaded) -> tuple[str, ...]:
    """Return the rules of the tables that are wanted."""
    if "table" not in own:
        return loaded.config.selecting.rules
    name = parsed(own["table"])
    if name is None:
        raise ConfigError(
            f"--table {own['table']!r}: database.table is expected, and `database`.`table` where a name holds a dot"
        )
    return (f"{quote(name.schema)}.{quote(name.table) if name.table else '*'}",)


def _followed(
    feed: Feed,
    low: int,
    wanted: Wanted,
    line: Callable[[Event], str],
    tuning: Tuning,
    environ: Mapping[str, str],
) -> Iterator[str | None]:
    told = 0

    def wait() -> bool:
        nonlocal told
        _complain(feed.contents.warnings[told:], environ)
        told = len(feed.contents.warnings)
        time.sleep(tuning.flush_interval)
        return True

    for event in feed.following(low, wait, wanted, patience=tuning.gap_timeout, retry_limit=tuning.retry_limit):
        yield None if event is None else line(event)


def _print(lines: Iterable[str | None], write: Callable[[str], bool]) -> None:
    """Write lines, many at once; those before a None at once. End where nobody reads them any more."""
    held: list[str] = []
    try:
        for line in lines:
            held += [] if line is None else [f"{line}\n"]
            is_due = line is None or len(held) >= _TOGETHER
            if is_due and not _flushed(held, write):
                return
    finally:
        # Also what came before an error.
        _flushed(held, write)


def _flushed(held: list[str], write: Callable[[str], bool]) -> bool:
    """Write what is held, and hold nothing; return whether anybody still reads it."""
    text = "".join(held)
    held.clear()
    return write(text) if text else True
