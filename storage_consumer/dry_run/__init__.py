"""A round that changes nothing: what the next one would do, as a `Plan`.

Takes the parts of a round (`RoundContext`) with readers of the real state and target. Gives records. It reads the bucket and the target, and
writes to neither: state, structure, statements and rows are doubles of the ports, so every rule is the engine's own. What a statement makes of
a table is not foretold: after the first one, a table's statements are unchecked, and its rows are only counted.
"""
