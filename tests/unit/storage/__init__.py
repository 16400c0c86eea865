"""Tests of storage_consumer.storage."""
