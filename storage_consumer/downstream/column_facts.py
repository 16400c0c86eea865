"""A column, from its row of information_schema."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from storage_consumer.job.target_table import TargetColumn


def target_column(facts: Sequence[Any], no_pad: Collection[str]) -> TargetColumn:
    """Return the column with these facts of information_schema.columns: name, type, nullability, extra, collation, expression.

    `no_pad` are the collations for which trailing spaces count. MySQL's DEFAULT_GENERATED marks a default expression, not a generated
    column.
    """
    name, data_type, nullable, extra, collation, expression = facts
    flags = (extra or "").upper()
    generated = ""
    if "VIRTUAL" in flags:
        generated = "VIRTUAL"
    elif "STORED" in flags or "PERSISTENT" in flags or (expression and "DEFAULT_GENERATED" not in flags):
        generated = "STORED"
    collation = collation or ""
    return TargetColumn(
        name=name,
        data_type=text_of(data_type).lower(),
        nullable=nullable == "YES",
        generated=generated,
        binary_collation=not collation or collation == "binary" or collation.endswith("_bin"),
        pads=bool(collation) and collation != "binary" and collation not in no_pad,
        collation=collation,
    )


def text_of(value: Any) -> str:
    """Return a value of information_schema as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
