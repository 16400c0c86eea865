"""What MySQL and MariaDB need in another form than TiDB: one module per family of clauses, each rule an edit of the statement's text.

Takes: a parsed statement and the target's kind. Gives: edits, with the reason for each. `catalogue` lists them all.
Touches the outside: no.
"""
