"""Rows of exports, as Dumpling and mydumper write them in SQL or CSV; each row is an INSERT."""
