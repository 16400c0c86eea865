"""Tests of storage_consumer.consumers."""
