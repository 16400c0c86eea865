"""TiCDC's CSV."""
