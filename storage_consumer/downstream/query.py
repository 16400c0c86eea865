"""Queries and their values, as the readers of this room take and get them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol


class Query(Protocol):
    """Runs a statement with arguments and returns all its rows."""

    def __call__(self, sql: str, arguments: Collection[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows; raise an error of `errors` if the server refuses the statement or does not answer."""
        ...


def text_of(value: Any) -> str:
    """Return a value as text. A server gives some columns of its own tables as bytes, and not each server the same ones."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
