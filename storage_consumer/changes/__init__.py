"""Changes as data: every row change and statement of a bucket, in commit order and each once.

Takes: a bucket's storage and settings, and a window of commit-ts. Gives: changes and statements in
their order, as texts or as Arrow record batches (`record_batches`), without a JVM.
Touches the outside: it lists and reads, through a `Storage`. It needs no target, no state and no
Spark.
"""
