"""The room `feed/`."""
