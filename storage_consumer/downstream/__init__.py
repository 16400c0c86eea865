"""Adapters: the MySQL-compatible server.

Takes: settings, the password and statements. Gives: connections with a known session, the server's kind, structures and locks, the
outcome of a statement, errors sorted by remedy, and the definitions of the state tables.
Touches the outside: the target.
"""
