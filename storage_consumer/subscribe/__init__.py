"""Subscriptions: get, ack and rollback over the bucket, embedded and by canal's TCP protocol."""
