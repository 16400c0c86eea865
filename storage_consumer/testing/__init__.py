"""Twins of the outside world that live in memory, for tests of this program and of programs around it.

Takes: the Protocols of `ports` and `storage`. Gives: implementations that keep their records across restarts.
Touches the outside: no.
"""
