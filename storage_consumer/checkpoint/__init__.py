"""(6) Checkpoint: the state schema in the target.

`store` is made of one class for each fact, which share `transactions`: for the owner of the lease, for a reader beside it, or for an operator.

Takes: the lease, progress, the DDL journal, structures, decisions. Gives: what a restart needs, and what operators see.
Touches the outside: the state tables of the target; every transaction of the owner checks the lease.
"""
