"""Tests of storage_consumer.operating."""
