"""(5) Apply: write rows to the target, behind the fence.

Takes: ordered changes of one bucket of keys. Gives: rows in the target, committed with the check of the fence.
Touches the outside: the target, over one connection per task.
"""
