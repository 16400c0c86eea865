"""Histories with rows that a target refuses: the source, the consumers with their operators, and the judge."""
