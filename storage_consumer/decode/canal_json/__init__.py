"""TiCDC's canal-json."""
