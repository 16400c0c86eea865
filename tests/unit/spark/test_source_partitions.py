"""How the files of a batch are shared among tasks."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import sentinel

import pytest

from storage_consumer.changes.window import FeedFile
from storage_consumer.spark.source.partitions import packed
from tests.unit.building import data_file

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("count", "size", "cores", "tasks"),
    [
        (2_300, KIB, 2, 2),
        (20_000, KIB, 8, 8),
        (10, KIB, 8, 1),
        (12, 64 * MIB, 2, 12),
        (40, 10 * MIB, 2, 7),
    ],
)
def test_small_files_are_shared_by_all_cores(count: int, size: int, cores: int, tasks: int) -> None:
    """Small ones go into as many tasks as there are cores, large ones by their bytes, and a few small ones into one task; each once, in order."""
    file = data_file("d/t", 1, 1)
    sized = replace(file, stored=replace(file.stored, size=size))
    files = [
        FeedFile(file=replace(sized, number=n), structure=sentinel.structure, floor=0, newest=False)
        for n in range(count)
    ]
    found = list(packed(files, 64 * MIB, cores))
    assert [each for some in found for each in some] == files
    assert len(found) == tasks
