"""Codes that compiled loops and plain Python share. Loops compile them in as constants, so the cache key covers them."""

from __future__ import annotations

PARTIAL_DELETE, DELETE, INSERT, UPDATE = -1, 0, 1, 2
"""Operations of a row change. Those above DELETE leave a row in place, which is all that counts for a table with a key.

PARTIAL_DELETE is a delete whose file has the handle key's columns only; its other values are None and mean nothing.
"""

INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD, FLOAT_FIELD = range(4)
"""Forms of numbers in a file; each protocol adds forms of other values."""
