"""Adapters: object stores and folders as a `Storage`.

Takes: settings and secrets. Gives: listings, small files, and the blocks of large ones.
Touches the outside: the stores, each through its own driver.
"""
