"""Faults of target, store and Spark under a small workload, as a table; see `__main__`."""
