"""What makes histories quick: answers of pure functions are remembered, since all histories are about the same few statements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from storage_consumer.bucket import schema_file
from storage_consumer.model import TableDefinition
from storage_consumer.plan import unqualified_names
from storage_consumer.sql import parse, tokens
from storage_consumer.target.ddl import translate

_MOST = 50_000
_ROOMS = ("storage_consumer.", "tests.harness.twins.")
"""What the names of the modules begin with that a history runs."""


def everywhere(stack: ExitStack, good: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Put a function in the place of another one in all modules that have it; there must be one."""
    having = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(_ROOMS) and getattr(module, good.__name__, None) is good
    ]
    assert having, f"no module has {good.__name__}"
    for module in having:
        stack.enter_context(patch.object(module, good.__name__, other))


def _by_arguments(good: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arguments that can be looked up; a list is handed out anew each time."""
    kept = lru_cache(maxsize=_MOST)(good)

    def again(*arguments: Any, **named: Any) -> Any:
        answer = kept(*arguments, **named)
        return list(answer) if isinstance(answer, list) else answer

    return again


def _by_statement(good: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a definition, which its path (with the checksum of its columns), statement and name tell from all others."""
    kept: dict[tuple[Any, ...], Any] = {}

    def again(definition: TableDefinition, *more: Any, **named: Any) -> Any:
        key = (definition.path, definition.query, definition.name, more, *named.values())
        if key not in kept:
            if len(kept) > _MOST:
                kept.clear()
            kept[key] = good(definition, *more, **named)
        answer = kept[key]
        return answer.copy() if isinstance(answer, list | set) else answer

    return again


_AGAIN: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    *((good, _by_arguments(good)) for good in (tokens.tokens, schema_file.parse_schema_file, parse.parse_ddl)),
    *(
        (good, _by_statement(good))
        for good in (
            unqualified_names.of_any_database,
            parse.looked_up,
            translate.action_for,
        )
    ),
)


@contextmanager
def remembered() -> Iterator[None]:
    """With the answers remembered; what the functions say stays the same."""
    with ExitStack() as stack:
        for good, again in _AGAIN:
            everywhere(stack, good, again)
        yield
