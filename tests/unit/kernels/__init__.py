"""Tests of storage_consumer.kernels."""
