"""(2) Plan: decide what must happen, and in which order.

* `manager`: all tables, and the next wave. Its parts: `directories` (which table owns a directory),
  `ddl_backlog` (what has not run), `touches` (what a statement is a barrier for), `covered` (what
  copies hold already), `selection` (the filter and the routes).
* `table`: one table's checkpoint and status, what happened to it, and when it began and ended. Its
  parts: `table_files`, `copies`.
* `planner`: what can run at the same time, and in which order.

Takes: data files, table definitions and the storage checkpoint. Gives: waves of steps, rows or DDL,
and how far each table is. Touches the outside: no.
"""
