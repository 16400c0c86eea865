"""Tests of storage_consumer.config."""
