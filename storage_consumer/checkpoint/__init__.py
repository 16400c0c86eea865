"""(6) Checkpoint: the state schema in the target.

Takes: progress, the DDL journal, decisions. Gives: what a restart needs, and what operators see.
Touches the outside: the state tables of the target; every transaction of the owner checks the lease.
"""
