"""(5) Apply: run the source's DDL on the target, each statement once.

Takes: a statement of TiDB and the target's kind. Gives: the statement that runs there, or the reason not to run one.
Touches the outside: `runner` does, through the adapter of `downstream`; everything else is text in, text out.
"""
