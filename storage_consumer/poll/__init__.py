"""(1) Poll: find what TiCDC has written since the last look.

Takes: listings and small files of a `Storage`. Gives: new schema files with their content, new data files, and the bucket's checkpoint.
Touches the outside: only through the Protocol `Storage`.
"""
