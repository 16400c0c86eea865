"""Tests of `storage_consumer.verifying`."""
