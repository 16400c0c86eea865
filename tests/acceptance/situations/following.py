"""How the program is started in the situations."""

from __future__ import annotations

from tests.acceptance.situations.watching import Watch


def arguments(watch: Watch) -> list[str]:
    """What `run` takes to follow a feed: it looks and gives up much sooner than it would by itself."""
    return [
        *("--upstream-uri", watch.upstream, "--include-commit-ts", "--downstream-uri", watch.uri, "--tz", "UTC"),
        *("--flush-interval", "200ms", "--gap-timeout", "1s", "--lease-ttl", "3s", "--metrics-listen", "127.0.0.1:0"),
        *("--ddl-lock-wait", "2s"),
    ]
