"""Tests of storage_consumer.job."""
