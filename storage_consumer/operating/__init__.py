"""Operators' commands beside a running consumer: `plan`, `doctor`, `verify`, `load`, retries.

* `planning`: a round that changes nothing. State, structure, statements and rows are doubles of the
  ports, so every rule is the engine's own. It cannot foresee a table's structure after a DDL: only
  the first statement of each table is checked, and rows are counted.
* `doctor_facts`, `checks`: what is known of bucket, target, Spark, network and state; each fact is
  judged, with a remedy.
* `verification`: the target against the source.
* `exporting`: exports of a live TiDB, and how an export is opened. `state_questions`: what commands
  and the status page ask of the state.

Takes: the settings, the state as operators see it, and a bucket. Gives: plans, findings,
comparisons.
Touches the outside: through `target`, `checkpoint` and the Protocol `Storage`.
"""
