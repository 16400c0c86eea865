"""Changes as JSON, one object a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from storage_consumer.config.settings import Protocol
from storage_consumer.decode.decoder import Values
from storage_consumer.feed.records import Change, Event, Statement, Structure
from storage_consumer.feed.values import Value, reader
from storage_consumer.kernels.arrays import INSERT, UPDATE
from storage_consumer.telemetry import tso_time

_WORDS = {INSERT: "insert", UPDATE: "update"}


class Images:
    """Turns images of rows into objects. Bytes are base64."""

    def __init__(self, protocol: Protocol) -> None:
        """Take wire texts as the data files' protocol gives them."""
        self._readers = lru_cache(maxsize=256)(
            lambda structure: [reader(column, protocol) for column in structure.columns]
        )

    def of(self, structure: Structure, values: Values | None, given: tuple[int, ...]) -> dict[str, Value] | None:
        """Return an image's columns at the indexes `given`, by name; None if there is no image."""
        if values is None:
            return None
        columns, read = structure.columns, self._readers(structure)
        cells = ((place, values[place]) for place in given)
        return {columns[place].name: None if text is None else _plain(read[place](text)) for place, text in cells}


def json_lines(protocol: Protocol) -> Callable[[Event], str]:
    """Return the function from an event to its line. Bytes are base64; numbers beyond 53 bits are exact, for those who read them so."""
    images = Images(protocol)

    def line(event: Event) -> str:
        if isinstance(event, Statement):
            return dumped(_statement(event))
        structure = event.structure
        is_delete = event.operation not in _WORDS
        given = event.given()
        before, after = (event.values, None) if is_delete else (event.old, event.values)
        return dumped(
            _head(event, structure)
            | {
                "before": images.of(structure, before, given),
                "after": images.of(structure, after, given),
                "table_version": structure.version,
                "file": event.file,
                "row": event.row,
            }
        )

    return line


def _head(event: Change, structure: Structure) -> dict[str, object]:
    return {
        "commit_ts": event.commit_ts,
        "commit_time": tso_time(event.commit_ts),
        "database": structure.table.schema,
        "table": structure.table.table,
        "type": _WORDS.get(event.operation, "delete"),
    }


def _statement(event: Statement) -> dict[str, object]:
    definition = event.definition
    return {
        "commit_ts": event.commit_ts,
        "commit_time": tso_time(event.commit_ts),
        "database": definition.name.schema,
        "table": definition.name.table or None,
        "type": "ddl",
        "statement": definition.query,
        "file": definition.path,
    }


def _plain(value: Value) -> Value:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def dumped(document: Mapping[str, object]) -> str:
    """Return a document as one line."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    # Lone surrogates, as invalid text has them, are written as escapes: no encoding could hold them.
    return text if text.isascii() or _is_text(text) else json.dumps(document, separators=(",", ":"))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
