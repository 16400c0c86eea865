"""TiCDC's CSV. `decoder` is the entry.

* `scan` reads rows one by one, by the pattern that `row_pattern` makes for a layout. `dialect` knows what the options mean.
* `first_rows` reads many rows of the usual form at once: `batch` finds their fields and writes their lines, by the loops of `kernels`.
"""
