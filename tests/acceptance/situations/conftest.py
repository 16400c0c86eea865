"""The pages, which are compared with what is seen or written anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.situations.book import Book


@pytest.fixture
def book(request: pytest.FixtureRequest) -> Iterator[Book]:
    """The pages of the situations; at the end, all that is stale is told at once."""
    found = Book(writes=request.config.getoption("--write-situations"))
    yield found
    found.close()
