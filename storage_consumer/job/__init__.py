"""The records of one Spark job, and how a job is cut into tasks.

Takes: the files of a wave, the structures they were written with, and the target's tables. Gives: picklable
specifications, and reports.
Touches the outside: no.
"""
