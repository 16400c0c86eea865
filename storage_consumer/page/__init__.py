"""The status page: what an operator's browser shows of a feed.

Takes: looks at the state, and what the process knows of itself. Gives: HTML and JSON, as answers to requests.
Touches nothing outside; the functions that look at the target are handed in.
"""
