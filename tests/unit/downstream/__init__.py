"""Tests of storage_consumer.downstream."""
