"""Tests of storage_consumer.rows."""
