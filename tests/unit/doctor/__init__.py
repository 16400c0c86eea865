"""The doctor: its rules, and its looks where they fail."""
