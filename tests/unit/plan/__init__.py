"""Tests of storage_consumer.plan."""
