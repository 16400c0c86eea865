"""TiCDC's CSV. `decoder` is the entry: `scan` reads rows one by one, `batch` many at once, and `dialect` knows what the options mean."""
