"""(1) Exports: find out what Dumpling or mydumper wrote.

Takes: the listing of an export's folder, its ``metadata`` and schema files. Gives: its tables, views and databases as definitions, and
the data files of each table in order.
Touches the outside: only through the Protocol `Storage`.
"""
