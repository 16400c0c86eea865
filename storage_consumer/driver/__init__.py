"""The loop: one round after another, until asked to stop.

* `service`: the start, rounds, and retries. `lease`: who holds it, and its renewal in the
  background.
* `round`: one round. It takes in the poll; `row_jobs` writes rows, `ddl_schedule` starts statements
  and applies their outcomes.
* `ddl_prepare`, `ddl_workers`: a statement's names in the target, and its run.
* `loading`, `load_starts`, `open_copies`: tables that are loaded from copies, and which loads
  begin.
* `ledger`: what the round did; through it tables halt and progress is stored. `remedies`, `doubts`:
  what messages tell people to do.

Takes: what `poll` found and `plan` decided. Gives: jobs for Spark, statements for the target, and
progress to store. Touches the outside: only through the Protocols of `ports`.
"""
