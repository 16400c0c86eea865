"""Reads the change files that TiCDC writes to object storage and keeps a MySQL-compatible database equal to the source."""
