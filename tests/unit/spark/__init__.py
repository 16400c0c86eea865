"""Tests of storage_consumer.spark."""
