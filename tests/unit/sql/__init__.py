"""Tests of storage_consumer.sql."""
