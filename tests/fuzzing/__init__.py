"""Targets of ``python -m tests.fuzz``, one module each, and the engine that feeds them."""
