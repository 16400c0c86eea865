"""``python -m tests.campaigns soak``: the real command for half an hour of changes, statements, restarts and faults, scraped and watched."""
