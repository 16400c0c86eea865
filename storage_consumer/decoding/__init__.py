"""(3) Decode: bytes to row changes."""
