"""``format("ticdc")``: Spark's data source for the changes in a bucket, in batches and as a stream.

Takes: options, and a commit-ts or an offset to begin from. Gives: partitions, and for each of them
the record batches of its files. Touches the outside: it lists and reads the bucket, in Spark's
planning processes and in its Python workers.
"""
