"""Tests of storage_consumer.ddl."""
