"""Tests of storage_consumer.order."""
