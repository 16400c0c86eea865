"""(4) Order: the two halves of a job, files to last changes, and comparing with the source. Pure.

* `spec`: the picklable records of one Spark job; `fitting`, `match`: a table of the target, and
  whether it can take a version's rows.
* `row_order`, `row_keys`: which change of a key counts, and which changes are repeats.
* `halves`: both halves of a job, read and write, independent of what carries blocks between them.
* `comparing`, `comparison`, `compared_layout`: is the target equal to the source, and what differs.

Takes: the files of a wave, decoded changes in the order of their files, and the target's tables.
Gives: one last state per key, or every event of a table without a key; specifications and reports.
Touches the outside: no.
"""
