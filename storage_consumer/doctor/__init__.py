"""Is everything as a consumer needs it? Bucket, target, Spark, network and state are looked at, and each fact is judged.

Takes the settings and gives findings: ok, warn, fail or not looked at, each with a remedy. It lists and reads the bucket and queries the
target, and changes neither.
"""
