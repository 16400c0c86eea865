"""(1) Poll: find what TiCDC has written since the last look.

Takes: listings and small files of a `Storage`. Gives: new schema files and data files, and the checkpoint of the bucket.
Touches the outside: only through the Protocol `Storage`.
"""
