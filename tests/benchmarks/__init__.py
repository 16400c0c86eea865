"""``python -m tests.benchmarks``: how fast a bucket becomes a database, and how near that is to what the server can load."""
