"""The loop: one round after another, until asked to stop.

* `service`: the lease, rounds, and retries.
* `round`: one round. `intake` takes in the poll, `rows` runs the jobs, `ddl_schedule` starts the statements.
* `ddl_queue`, `ddl_prepare`, `ddl_workers`, `ddl_outcomes`: a statement's turn, its names in the target, its run, and what follows from it.
* `ledger`: what the round did; through it tables halt and progress is stored.
* `renewal`: the lease is renewed in the background.

Takes: what `poll` found and `plan` decided. Gives: jobs for Spark, statements for the target, and progress to store.
Touches the outside: only through the Protocols of `ports`.
"""
