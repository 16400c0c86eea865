"""Tests of the decoding stage."""
