"""The exposition: metrics as a page, and as a file for node_exporter's textfile collector."""

from __future__ import annotations

import threading
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, write_to_textfile
from prometheus_client.exposition import choose_encoder

from storage_consumer.clock import Clock
from storage_consumer.errors import ConfigError
from storage_consumer.monitoring.collector import ConsumerCollector, MetricSources
from storage_consumer.monitoring.http_server import Request, Response
from storage_consumer.telemetry import Log

EVERY = 15.0
"""Seconds between two versions of the file."""
_LAST_WAIT = 2.0
"""Seconds that the end of the program waits for the last version."""
_log = Log("monitoring")


class Exposition:
    """The metrics of one consumer, in a registry of their own: those of the program around it are left alone."""

    def __init__(self, sources: MetricSources, most_tables: int) -> None:
        """At most `most_tables` tables get series of their own."""
        self.registry = CollectorRegistry()
        self.registry.register(ConsumerCollector(sources, most_tables))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def page(self, request: Request) -> Response:
        """Return all metrics, as OpenMetrics for whoever asks for that, else as Prometheus' text."""
        encode, content_type = choose_encoder(request.accept)
        return Response(body=encode(self.registry), content_type=content_type)


class Textfile:
    """Writes all metrics into a file, until it is closed. Readers never see half of it."""

    def __init__(self, path: str, exposition: Exposition, clock: Clock) -> None:
        """Write the first version and start the thread; raise `ConfigError` if the file cannot be written."""
        self._path = path
        self._exposition = exposition
        self._clock = clock
        self._end = threading.Event()
        self._has_failed = False
        try:
            self._write()
        except OSError as fault:
            raise ConfigError(f"--metrics-textfile {path}: it cannot be written: {fault.strerror or fault}") from fault
        self._thread = threading.Thread(target=self._run, name="metrics-textfile", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the last version and end the thread."""
        self._end.set()
        self._thread.join(timeout=_LAST_WAIT)

    def _run(self) -> None:
        while not self._clock.wait(self._end, EVERY):
            self._try()
        self._try()

    def _try(self) -> None:
        try:
            self._write()
            self._has_failed = False
        except OSError as fault:
            # Once: a full disk stays full for a while.
            if not self._has_failed:
                _log.warning("textfile_failed", path=self._path, error=str(fault))
            self._has_failed = True

    def _write(self) -> None:
        # Beside the file under another name, then renamed.
        write_to_textfile(str(Path(self._path)), self._exposition.registry)
