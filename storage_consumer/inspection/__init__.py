"""Find out how a bucket was written.

Takes: paths and a bounded sample of files. Gives: the settings that fit them, and what stays open.
Touches the outside: only through the Protocol `Storage`.
"""
