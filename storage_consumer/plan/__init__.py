"""(2) Plan: decide what must happen, and in which order.

Takes: files and table definitions. Gives: waves of steps, rows or DDL, and how far each table is.
Touches the outside: no.
"""
