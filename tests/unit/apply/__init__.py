"""Tests of storage_consumer.apply."""
