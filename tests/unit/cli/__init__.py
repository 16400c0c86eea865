"""Tests of storage_consumer.cli."""
