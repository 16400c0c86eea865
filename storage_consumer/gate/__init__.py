"""The gate: which statements of schema files may run. Pure.

A schema file is data from outside, and the account that runs its statement may do much more than TiDB's DDL. So a statement runs only
if it is one of the kinds that TiCDC stores, fits the action code of its file, is about the file's own table, and consists only of
words that this kind has in TiDB's grammar. All of this is an allow-list: what no list knows halts its table. The gate is one judge of
several: docs/architecture.md lists them.

* `readings`: the text as a server without TiDB's comments reads it, and as TiDB does; both have to pass.
* `comments`: what TiDB's own comments may hold.
* `judging`: the kinds, by their first words, whose statement it is, and which other tables it takes rows from or gives rows to.
* `altering`, `defining`: what follows the head of ALTER TABLE and of CREATE TABLE.
* `clauses`: runs of tokens against a vocabulary; `words` and `functions`: the vocabularies.

Takes: a schema file's definition and its statement. Gives: nothing, or a `StatementRefused` with the reason.
Touches the outside: no.
"""
