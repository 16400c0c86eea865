"""What a copy from right before a statement may hold of its effect."""

from __future__ import annotations

import pytest

from storage_consumer.model import DdlKind, TableDefinition, TableName, TableVersion
from storage_consumer.plan.covered import near_copy

SECOND = 1000 << 18
COPY = 469_237_760_524_288_000


def statement(kind: DdlKind, version: int) -> TableDefinition:
    """A statement of this kind."""
    name = TableName(schema="shop", table="a")
    return TableDefinition(
        name=name, version=TableVersion(version), columns=(), ddl_type=kind, query="", path="", checksum=1
    )


@pytest.mark.parametrize(
    ("kind", "copied_at", "seconds", "is_told"),
    [
        (DdlKind.TRUNCATE_PARTITION, COPY, 0.018, True),
        (DdlKind.TRUNCATE_PARTITION, COPY, 3600, True),
        (DdlKind.TRUNCATE_PARTITION, COPY, 3601, False),
        (DdlKind.TRUNCATE_PARTITION, 0, 1, False),
        (DdlKind.TRUNCATE_TABLE, COPY, 1, False),
        (DdlKind.DROP_PARTITION, COPY, 1, False),
    ],
)
def test_a_partition_emptied_near_a_copy(*, kind: DdlKind, copied_at: int, seconds: float, is_told: bool) -> None:
    """Only a copy tells whether a partition that is emptied within an hour of it holds rows from after that; it is told with both moments."""
    told = near_copy(statement(kind, COPY + int(seconds * SECOND)), copied_at)
    assert bool(told) is is_told
    assert not told or (f"{seconds:.3f} s" in told and str(COPY) in told)
