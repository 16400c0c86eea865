"""The status page: its parts, and what it answers."""
