"""Tests of storage_consumer, and what they stand on: private servers, corpora, a comparison of databases."""
