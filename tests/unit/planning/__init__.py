"""Tests of storage_consumer.planning."""
