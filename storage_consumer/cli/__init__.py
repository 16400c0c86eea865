"""The command line.

Takes: arguments, environment and signals. Gives: text or JSON on standard output, and an exit code.
Touches the outside: through `api`, `operating` and `session`; it opens nothing itself but the
terminal.
"""
