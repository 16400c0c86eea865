"""Blocks on their way from one half of a job to the other."""

from __future__ import annotations

import errno
import os
import pickle
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.rows.row_order import CHANGES, NOTICE, REPORT, Place
from storage_consumer.spark.pipeline import received, sent

Item = tuple[Place, Any]
NUMBERS = random.Random(7)  # noqa: S311 - data, not a secret
ITEMS: list[Item] = [
    ((0, NOTICE, 3, 0), None),
    *(((0, CHANGES, 3, ts), NUMBERS.randbytes(ts * ts)) for ts in range(100)),
    ((0, REPORT, 3, 0), "report"),
]


def travelled(items: list[Item]) -> list[Item]:
    """The items as Spark would hand them on."""
    found: list[Item] = pickle.loads(pickle.dumps(items))  # noqa: S301 - made here
    return found


@pytest.mark.parametrize("tasks", [1, 7])
def test_in_files(tasks: int, tmp_path: Path) -> None:
    """However many tasks send side by side, what was sent comes by place as it was, and no block goes through Spark."""
    parts = [sent(ITEMS[number::tasks], str(tmp_path)) for number in range(tasks)]
    seen = [item for side_by_side in zip_longest(*parts) for item in side_by_side if item]
    assert len(list(tmp_path.iterdir())) == tasks
    assert not any(isinstance(item, bytes) for _, item in seen)
    assert list(received(NUMBERS.sample(travelled(seen), len(seen)), str(tmp_path))) == ITEMS


def test_through_spark() -> None:
    """Without a folder items go as they are, and come by place."""
    assert list(sent(ITEMS, "")) == ITEMS
    assert list(received(NUMBERS.sample(ITEMS, len(ITEMS)), "")) == ITEMS


def test_tried_again(tmp_path: Path) -> None:
    """A second attempt of a task writes a file of its own, whatever the first one has left half done."""
    first = iter(sent(ITEMS, str(tmp_path)))
    begun = [next(first) for _ in range(50)]
    again = list(sent(ITEMS, str(tmp_path)))
    assert list(received(again, str(tmp_path))) == ITEMS
    assert begun[:1] == ITEMS[:1]


def test_nothing_to_send(tmp_path: Path) -> None:
    """A task without blocks, and one that is sent nothing."""
    assert list(sent(ITEMS[:1], str(tmp_path))) == ITEMS[:1]
    assert list(received([], str(tmp_path))) == []


def test_folder_that_is_gone(tmp_path: Path) -> None:
    """A task that begins after the job's folder was removed fails, also where it has no block."""
    with pytest.raises(FileNotFoundError, match="away"):
        list(sent(ITEMS[:1], str(tmp_path / "away")))


def test_file_that_is_gone(tmp_path: Path) -> None:
    """A block whose file was removed is an error, not left out."""
    items = list(sent(ITEMS, str(tmp_path)))
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        list(received(items, str(tmp_path)))


def test_file_that_was_cut(tmp_path: Path) -> None:
    """A block of which the end is missing is an error, not a shorter one; those before it come whole."""
    items = list(sent(ITEMS, str(tmp_path)))
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 1)
    found: list[Item] = []
    with pytest.raises(OSError, match="9801 bytes") as caught:
        found.extend(received(items, str(tmp_path)))
    assert caught.value.errno == errno.EIO
    assert found == ITEMS[:100]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process gets larger: of what is written beyond, the first part is, and then nothing."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room(tmp_path: Path) -> None:
    """A block that is written in part only is not given out; the error names the file."""
    found: list[Item] = []
    with largest_file(1_000), pytest.raises(OSError, match=tmp_path.name):
        found.extend(sent(ITEMS, str(tmp_path)))
    assert list(received(found, str(tmp_path))) == ITEMS[:15]  # 0 + 1 + 4 + … + 169 bytes


def test_read_when_it_is_asked_for(tmp_path: Path) -> None:
    """Blocks are not read before their turn, so that a bucket of any size takes no more memory than one of them."""
    items = list(sent(ITEMS, str(tmp_path)))
    (path,) = tmp_path.iterdir()
    coming = received(items, str(tmp_path))
    assert [next(coming) for _ in range(50)] == ITEMS[:50]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        next(coming)
