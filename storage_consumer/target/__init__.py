"""(5) Apply: write rows behind the fence; read and change the MySQL-compatible server's structures.

* `connection`, `session_settings`, `database`, `mysql_errors`: connections with a known session,
  locks, server errors translated into ours.
* `structure`, `existing_names`, `source_reading`, and the facts of a server in `database`: what is
  there. `rights`: the GRANT for what is missing.
* `bucket_writer`, `apply_rows`, `row_statements`, `keyless`, `transaction`: ordered changes of one
  bucket of keys become committed rows.
* `state_tables`: the definitions of the state's tables.
* `ddl/`: the source's DDL.

Takes: settings, the password, statements, and ordered changes. Gives: structures, outcomes, and
rows committed with the check of the fence. Touches the outside: the target, over one connection per
task, and the driver's own.
"""
