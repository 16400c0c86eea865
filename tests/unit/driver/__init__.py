"""Tests of storage_consumer.driver."""
