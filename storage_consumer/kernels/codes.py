"""Codes that compiled loops and plain Python share. A loop keeps them as constants, so they are part of what its cache goes by."""

from __future__ import annotations

PARTIAL_DELETE, DELETE, INSERT, UPDATE = -1, 0, 1, 2
"""Operations of a row change; those above DELETE leave a row behind, which for a table with a key is all that counts.

PARTIAL_DELETE is a delete whose file says the handle key's columns only; its other values are None and mean nothing.
"""

INTEGER_FIELD, UNSIGNED_FIELD, YEAR_FIELD, FLOAT_FIELD = range(4)
"""Forms of numbers in a file; both protocols have forms of other values beside them."""
