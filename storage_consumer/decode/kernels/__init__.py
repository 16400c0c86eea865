"""Byte loops, compiled by Numba when they first run.

Takes: byte arrays. Gives: arrays of positions, numbers and lines. Every loop has a plain Python
twin, so no rule of the format is decided here alone.
Touches the outside: caches compiled code in a folder. Import its modules late: see `jit`.
"""
