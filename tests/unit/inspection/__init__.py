"""Tests of what looks at a bucket."""
