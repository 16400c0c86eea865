"""What a running program shows: reports, status, metrics, the status page, `--on-halt`.

Takes: the progress of rounds, the events of the log, and snapshots of the state. Gives: reports,
the status of a feed, metrics, and HTML and JSON as answers to requests. The driver never imports
it.
Touches the outside: the listener and the command of `--on-halt`; the functions that look at the
target are handed in.
"""
