"""(2) Plan: decide what must happen, and in which order.

* `manager`: all tables, and the next wave. Its parts: `directories` (whose a directory is), `ddl_backlog` (what has not run), `touches` (what
  a statement is a barrier for), `lifetimes` (when tables begin and end).
* `table`: one table's checkpoint and status. Its parts: `table_files`, `timeline`, `copies`.
* `planner`: what can run at the same time.

Takes: data files, table definitions and the storage checkpoint. Gives: waves of steps, rows or DDL, and how far each table is.
Touches the outside: no.
"""
