"""Tests of storage_consumer.inspection."""
