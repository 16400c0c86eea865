"""Changes as Arrow record batches, for pandas, Polars, DuckDB and whatever else reads Arrow. No JVM takes part.

Takes: a window of a feed, and which table of it. Gives: typed columns, in commit order, each change once.
Touches the outside: it reads the window's files, through a `Storage`.
"""
