"""SQL text: find names and clauses without a full parser; judge what may run. Pure.

A schema file is data from outside, and the account that runs its statement may do much more than
TiDB's DDL. So a statement runs only if it is one of the kinds that TiCDC stores, fits the action
code of its file, is about the file's own table, and consists only of words that this kind has in
TiDB's grammar. All of this is an allow-list: what no list knows halts its table. The gate is one
judge of several: docs/architecture.md lists them.

* `tokens`, `statement`, `parse`: the tokens of a DDL, its tree (`Statement`), what it says
  (`ParsedDdl`).
* `gate`: the kinds, by their first words, what follows them, whose statement it is, and which other
  tables it moves rows of.
* `gate_clauses`: the text as a server without TiDB's comments reads it, and as TiDB does, which
  both have to pass; what these comments may hold; and runs of tokens against a vocabulary.
* `gate_words`: the vocabularies.

Takes: the text of a DDL, and its schema file's definition. Gives: what it says, edits of its text,
or a `StatementRefused` with the reason. Touches the outside: no.
"""
