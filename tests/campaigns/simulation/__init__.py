"""A deterministic simulation of source, TiCDC, bucket, processes and target; `python -m tests.campaigns.simulate` runs it."""
