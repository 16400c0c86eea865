"""Loops over bytes, compiled by Numba when they first run.

Takes: arrays of bytes. Gives: arrays of positions, numbers and lines; no rule of the format is decided here alone, each loop has a plain twin.
Touches the outside: keeps compiled code in a cache folder. Import its modules late: see `jit`.
"""
