"""(6) Checkpoint: the state schema in the target.

`store` is made of `lease`, `progress`, `journal`, `schema_history` and `decisions`, which share `transactions`. `operator` and its parts
need no lease.

Takes: the lease, progress, the DDL journal, structures, decisions. Gives: what a restart needs, and what operators see.
Touches the outside: the state tables of the target; every transaction of the owner checks the lease.
"""
