"""Calls a command or a web address when a table halts, when it goes on, at a take-over, and when the program fails.

Takes: events of the log, and the summaries of rounds. Gives: documents to the hooks of --on-halt. Touches the outside: starts commands
and sends requests, from threads of its own; no round waits for them.
"""
