"""The room `frames/`."""
