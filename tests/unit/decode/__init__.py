"""Tests of storage_consumer.decode."""
