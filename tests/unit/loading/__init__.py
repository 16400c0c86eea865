"""Tests of storage_consumer.loading."""
