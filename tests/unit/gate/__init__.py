"""Tests of storage_consumer.gate."""
