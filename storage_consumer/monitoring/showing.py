"""What a running consumer shows to those that watch it: the HTTP server with metrics and probes, and the file with metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage_consumer.clock import SystemClock
from storage_consumer.config.settings import Monitoring
from storage_consumer.monitoring.collector import Sources
from storage_consumer.monitoring.exposition import Exposition, Textfile
from storage_consumer.monitoring.http_server import Handler, HttpServer
from storage_consumer.monitoring.probes import Probes


class Showing:
    """Shows what the settings ask for, from `start` to `close`."""

    def __init__(
        self,
        wanted: Monitoring,
        sources: Sources,
        silent_seconds: Callable[[], float | None],
        more: Mapping[str, Handler] | None = None,
    ) -> None:
        """Touch nothing yet. `silent_seconds`: see `Consumer.silent_seconds`; `more`: further routes of the server."""
        self._wanted = wanted
        self._exposition = Exposition(sources, wanted.metrics_tables)
        probes = Probes(sources.facts, sources.is_writer, silent_seconds, wanted.ready_lag)
        own = {"/metrics": self._exposition.page, "/healthz": probes.health, "/readyz": probes.readiness}
        self._routes: dict[str, Handler] = {**(more or {}), **own}
        self._http_server: HttpServer | None = None
        self._textfile: Textfile | None = None

    def start(self) -> None:
        """Begin, unless it has begun. Raises `ConfigError` if the port or the file cannot be had."""
        if self._wanted.metrics_listen and self._http_server is None:
            self._http_server = HttpServer(self._wanted.metrics_listen, self._routes)
        if self._wanted.metrics_textfile and self._textfile is None:
            # With a clock of its own: its waits say nothing about the consumer.
            self._textfile = Textfile(self._wanted.metrics_textfile, self._exposition, SystemClock())

    def close(self) -> None:
        """End; calling it again is safe."""
        if self._textfile is not None:
            self._textfile.close()
            self._textfile = None
        if self._http_server is not None:
            self._http_server.close()
            self._http_server = None
