"""Loading: what has to hold between a copy of tables and the changes that follow it.

Takes: the TSO of a copy, and what is known of the changefeed. Gives: nothing, or why the two do not fit together.
Touches the outside: no.
"""
