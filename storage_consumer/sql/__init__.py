"""SQL text: find names and clauses in a statement without a full parser.

Takes: the text of a DDL. Gives: its tokens, its tree (`Statement`), what it says (`ParsedDdl`), and edits of its text.
Touches the outside: no.
"""
