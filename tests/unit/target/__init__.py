"""Tests of storage_consumer.target."""
