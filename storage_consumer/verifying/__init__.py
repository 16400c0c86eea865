"""Is the target equal to the source? What is compared, in which form, and what is found. Pure.

Takes two sides of a table, whatever is behind them, and facts about the state. Gives results: equal at a commit-ts, or what differs. It
touches nothing outside: `downstream` reads the servers, and `operating` brings both together.
"""
