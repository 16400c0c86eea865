"""Exports: names, metadata, structures and what is refused."""
