"""Tests of storage_consumer.poll."""
