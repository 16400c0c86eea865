"""Adapters: Spark.

Takes: the specification of a job. Gives: its reports. It has no rules of its own: both halves of a job are in
`pipeline`.
Touches the outside: Spark's JVM and its workers; no other package imports pyspark.
"""
