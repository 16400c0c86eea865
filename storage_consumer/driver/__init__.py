"""The loop: one round after another, until asked to stop.

Takes: what `poll` found and `plan` decided. Gives: jobs for Spark, statements for the target, and progress to store.
Touches the outside: only through the Protocols of `ports`.
"""
