"""Monitoring: reports, the status of a feed, and what counts them."""
