"""(6) Checkpoint: the state schema in the target.

`store` combines one class per kind of fact, all over `transactions`. It opens for the owner of the
lease, a reader or an operator.

Takes: the lease, progress, the DDL journal, structures, decisions. Gives: what a restart needs, and
what operators see. Touches the outside: the state tables of the target; every transaction of the
owner checks the lease.
"""
