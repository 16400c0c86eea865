"""One suite per interface, over the real thing and its twin."""
