"""Tests of storage_consumer.alerts."""
