"""Values of an export beside those of a server."""

from __future__ import annotations

import pytest

from storage_consumer.operating.exported_source import exported_float


@pytest.mark.parametrize(
    ("exported", "at_target", "is_equal"),
    [
        ("1e+15", "999999986991104", True),
        ("1e+15", "1000000054099968", True),
        ("1.00001e+15", "999999986991104", False),
        ("999999900000000", "999999919882240", True),
        ("999999900000000", "999999986991104", False),
        ("3.40282e+38", "3.4028234663852886e38", True),
        ("-3.40282e+38", "3.4028234663852886e38", False),
        ("1.23457e-20", "1.2345678e-20", True),
        ("1.23457e-20", "1.2346e-20", False),
        ("1e-15", "1e-15", True),
        ("1e-15", "9.999999e-16", True),
        ("1.4013e-45", "1.401298464324817e-45", True),
        ("0.1", "0.10000000149011612", True),
        ("0.1", "0.10000001", False),
        ("0", "-0", False),
        ("0", "1e-45", False),
    ],
)
def test_floats(exported: str, at_target: str, *, is_equal: bool) -> None:
    """A FLOAT counts by the value that 32 bits hold; where an export shows six digits of it, by these."""
    assert (exported_float(exported.encode()) == exported_float(at_target.encode())) == is_equal
