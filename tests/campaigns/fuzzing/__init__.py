"""Targets of ``python -m tests.campaigns.fuzz``, one module each, and the engine that feeds them."""
