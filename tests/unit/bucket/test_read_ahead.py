"""Small objects are read before their turn, and nothing else about them changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.bucket.storage import ReadAhead
from storage_consumer.model import StoredObject

SMALL, LARGE = 10, 300_000
AHEAD = 16


class Watched:
    """A storage that counts who reads at the same time; an object of size 0 is not there."""

    def __init__(self) -> None:
        """Nobody has read yet."""
        self.reading: list[str] = []
        self.gate = threading.Barrier(AHEAD + 1, timeout=10)
        self.waits = False

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:  # noqa: ARG002 - the interface
        """The content tells the path and the tag."""
        self.reading.append(path)
        if self.waits:
            self.gate.wait()
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        yield f"{path} {tag}"[start:].encode()


def objects(sizes: list[int]) -> list[tuple[StoredObject, str]]:
    """Objects of these sizes, in an order, each with a tag."""
    names = (f"{number}{'' if size else 'gone'}" for number, size in enumerate(sizes))
    return [
        (StoredObject(path=name, size=size, tag="t"), f"tag{name}") for name, size in zip(names, sizes, strict=True)
    ]


@given(st.lists(st.sampled_from([0, SMALL, LARGE]), max_size=60), st.data())
def test_what_is_read(sizes: list[int], data: st.DataObject) -> None:
    """In order, with some left out and some read twice, each object is what the storage gives, or its error."""
    order = objects(sizes)
    with closing(ReadAhead(Watched(), order)) as ahead:
        for stored, tag in (each for each in order for _ in range(data.draw(st.sampled_from([0, 1, 1, 2])))):
            content = f"{stored.path} {tag}"
            found = (ahead.blocks(stored.path, 100, start, tag) for start in (0, 2))
            expected = pytest.raises(FileNotFoundError, match="gone") if not stored.size else nullcontext()
            with expected:
                assert [b"".join(each) for each in found] == [content.encode(), content[2:].encode()]


def test_at_the_same_time() -> None:
    """With the first of many, the sixteen that follow are on their way, large ones excepted; none is asked for twice."""
    order = objects([SMALL, LARGE, *[SMALL] * 40])
    storage = Watched()
    storage.waits = True
    with closing(ReadAhead(storage, order)) as ahead:
        # The barrier opens once all seventeen wait at it.
        assert b"".join(ahead.blocks("0", 100, tag="tag0")) == b"0 tag0"
        assert sorted(storage.reading, key=int) == ["0", *map(str, range(2, 2 + AHEAD))]
        storage.waits = False
        for stored, tag in order[1:]:
            assert b"".join(ahead.blocks(stored.path, 100, tag=tag)) == f"{stored.path} {tag}".encode()
    assert sorted(storage.reading, key=int) == [stored.path for stored, _ in order]
