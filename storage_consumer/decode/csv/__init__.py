"""TiCDC's CSV. `decoder` is the entry.

* `scan` reads rows one by one, by the pattern that `row_pattern` makes for a layout. `dialect` knows what the options mean.
* `decode.bulk` reads many rows of the usual form at once, by the loops of `kernels`.
"""
