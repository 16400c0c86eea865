"""Adapters: Spark.

Takes: the specification of a job. Gives: its reports. No rule of its own: both halves of a job are in `pipeline`.
Touches the outside: Spark's JVM and its workers; no other package imports pyspark.
"""
