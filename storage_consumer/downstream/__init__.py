"""Adapters: the MySQL-compatible server.

Takes: settings and the password. Gives: connections with a known session, the server's kind, structures and locks, and errors sorted by remedy.
Touches the outside: the target.
"""
