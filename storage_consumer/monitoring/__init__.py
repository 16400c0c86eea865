"""Monitoring: what the program shows of itself while it runs.

Takes the progress of rounds and the events of the log; gives reports, the status of a feed and metrics. The engine knows nothing of it.
"""
