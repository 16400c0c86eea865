"""Which changes TiCDC leaves out when it writes, as far as they decide which rows a table has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storage_consumer.config.parsers import Document
from storage_consumer.config.settings import LeftOut
from storage_consumer.config.sources import Sources

_EVENTS = frozenset(
    (
        *("all", "all dml", "insert", "update", "delete"),
        *("all ddl", "alter table", "truncate table", "recover table"),
        *("truncate table partition", "drop table partition", "exchange table partition"),
    )
)
"""What changes which rows there are; a structure that changes without its statement is noticed where it is read."""
_EXPRESSIONS = (
    *("ignore-insert-value-expr", "ignore-update-old-value-expr", "ignore-update-new-value-expr"),
    *("ignore-delete-value-expr", "ignore-update-only-columns"),
)


def left_out(sources: Sources) -> tuple[LeftOut, ...]:
    """Return what the changefeeds' files leave out, in their order."""
    documents = (each for each in sources.documents if each.source not in sources.elsewhere)
    return tuple(found for document in documents for found in _of(document))


def _of(document: Document) -> Iterator[LeftOut]:
    given = document.content.get("filter")
    filters = given if isinstance(given, Mapping) else {}
    if filters.get("ignore-txn-start-ts"):
        yield LeftOut(matcher=("*.*",), what=f"ignore-txn-start-ts of [filter] in {document.source}")
    entries = filters.get("event-filters")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        events = [repr(event) for event in _texts(entry.get("ignore-event")) if event.strip().lower() in _EVENTS]
        what = [f"ignore-event {', '.join(events)}"] if events else []
        what += [key for key in _EXPRESSIONS if entry.get(key)]
        if what:
            named = f"{', '.join(what)} of [[filter.event-filters]] in {document.source}"
            yield LeftOut(matcher=_texts(entry.get("matcher")), what=named)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()
