"""Instruments that run for minutes or hours: ``python -m tests.campaigns NAME``; the suites hold a small sample of each."""
