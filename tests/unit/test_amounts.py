"""Amounts of data as readers like them."""

from __future__ import annotations

import pytest

from storage_consumer.clock import data_size


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_data_size(number: int, shown: str) -> None:
    """Bytes are whole; larger units have one decimal, and nothing is larger than a TiB."""
    assert data_size(number) == shown
