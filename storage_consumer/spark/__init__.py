"""Adapters: Spark.

Takes: the specification of a job. Gives: its reports. It has no rules of its own: both halves of a
job are in `rows.halves`, and `pipeline` runs them in Spark. For those who bring a session of their
own it has the changes of a bucket as DataFrames: ``format("ticdc")`` and the functions `register`,
`changes`, `latest` and `table_at`.
Touches the outside: Spark's JVM and its workers; no other package imports pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage_consumer.spark.source.dataframes import changes, latest, register, table_at

__all__ = ["changes", "latest", "register", "table_at"]


def __getattr__(name: str) -> Any:
    """Import the functions at first use: a consumer and its tasks do without pyarrow."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from storage_consumer.spark.source import dataframes  # noqa: PLC0415 - see above

    return getattr(dataframes, name)
