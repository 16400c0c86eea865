"""(5) Apply and (6) checkpoint: the downstream database."""
