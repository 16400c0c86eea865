"""Registers ``format("ticdc")``: Spark imports modules ``pyspark_*`` for `DefaultSource`."""

from contextlib import suppress

# Without pyarrow no data source in Python works, and this one must not be in the way of those in
# Java.
with suppress(ImportError):
    from storage_consumer.spark.source.ticdc import TicdcDataSource as DefaultSource

__all__ = ["DefaultSource"]
