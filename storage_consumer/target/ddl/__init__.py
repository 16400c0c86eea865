"""(5) Apply: run the source's DDL on the target, each statement once.

`catalogue` lists what MySQL and MariaDB need in another form than TiDB: one module per family of
clauses, each rule an edit of the statement's text. `translate` applies them, `runner` runs the
result.

Takes: a statement of TiDB and the target's kind. Gives: the statement that runs there, or the
reason not to run one. Touches the outside: `runner` does, through `target`; everything else is text
in, text out.
"""
