"""What an operator's commands do beside a running consumer.

Takes: the state as operators see it, and a bucket. Gives: comparisons, such as whether another place holds the same files.
Touches the outside: through `checkpoint` and the Protocol `Storage`.
"""
