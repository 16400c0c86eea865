"""TiCDC's canal-json. `decoder` is the entry: `message` reads messages one by one, and `batch` many at once."""
