"""(4) Order: decide which change of a key counts, and which changes are repeats.

Takes: decoded changes in the order of their files. Gives: one last state per key, or every event of a table without a
key.
Touches the outside: no.
"""
