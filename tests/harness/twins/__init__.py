"""In-memory twins of the outside world: implementations of `ports` and `storage` that keep their records across restarts."""
