"""What a running consumer shows to those that watch it: the HTTP server with metrics and probes, and a file with metrics for node_exporter."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, write_to_textfile
from prometheus_client.exposition import choose_encoder

from storage_consumer.config.settings import Monitoring
from storage_consumer.errors import ConfigError
from storage_consumer.monitoring.collector import ConsumerCollector, MetricSources
from storage_consumer.monitoring.health import is_late, lag_of
from storage_consumer.monitoring.http_server import Handler, HttpServer, Request, Response, said
from storage_consumer.monitoring.report import Phase
from storage_consumer.monitoring.ticker import Ticker
from storage_consumer.telemetry import Log

SILENCE = 180.0
"""Seconds without any wait of the consumer after which it counts as hanging. Each attempt to reach something ends much sooner."""
EVERY = 15.0
"""Seconds between two versions of the file."""
_log = Log("monitoring")


class Showing:
    """Shows what the settings ask for, from `start` to `close`."""

    def __init__(self, wanted: Monitoring, sources: MetricSources, more: Mapping[str, Handler] | None = None) -> None:
        """Touch nothing yet. `more`: further routes of the server."""
        self._wanted = wanted
        self._sources = sources
        # In a registry of its own: those of the program around it are left alone.
        self._registry = CollectorRegistry()
        self._registry.register(ConsumerCollector(sources, wanted))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        own = {"/metrics": self.metrics, "/healthz": self.health, "/readyz": self.readiness}
        self._routes: dict[str, Handler] = {**(more or {}), **own}
        self._http_server: HttpServer | None = None
        self._ticker: Ticker | None = None
        self._has_failed = False

    def start(self) -> None:
        """Begin, unless it has begun. Raises `ConfigError` if the port or the file cannot be had."""
        if self._wanted.metrics_listen and self._http_server is None:
            self._http_server = HttpServer(self._wanted.metrics_listen, self._routes)
        if (path := self._wanted.metrics_textfile) and self._ticker is None:
            try:
                write_to_textfile(path, self._registry)
            except OSError as fault:
                raise ConfigError(
                    f"--metrics-textfile {path}: it cannot be written: {fault.strerror or fault}"
                ) from fault
            self._ticker = Ticker(self._write, EVERY)
            self._ticker.start()

    def close(self) -> None:
        """End; calling it again is safe."""
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        if self._http_server is not None:
            self._http_server.close()
            self._http_server = None

    def metrics(self, request: Request) -> Response:
        """Return all metrics, as OpenMetrics for whoever asks for that, else as Prometheus' text."""
        encode, content_type = choose_encoder(request.accept)
        return Response(body=encode(self._registry), content_type=content_type)

    def health(self, _request: Request) -> Response:
        """Return 200 while the consumer works or knowingly waits; 503 once it hangs."""
        silent = self._sources.silent_seconds()
        if silent is not None and silent > SILENCE:
            return said(f"the consumer has not moved for {silent:.0f} s", HTTPStatus.SERVICE_UNAVAILABLE)
        return said(f"alive: {self._sources.facts().report.phase}")

    def readiness(self, _request: Request) -> Response:
        """Return 200 if this process is the writer, has finished a round, retries nothing and is near enough; else 503 with the reason."""
        facts = self._sources.facts()
        report, limit, lag = facts.report, self._wanted.ready_lag, lag_of(facts.last.slowest, facts.now)
        if not self._sources.is_writer():
            if report.phase == Phase.STANDBY:
                reason = "standby: another process is the writer"
            else:
                reason = f"not the writer yet: {report.phase} {report.retry}".strip()
        elif not report.totals.rounds:
            reason = f"no round has ended yet: {report.phase} {report.retry}".strip()
        elif report.phase == Phase.RETRYING:
            reason = f"retrying: {report.retry}"
        elif is_late(facts.last.slowest, facts.now, limit):
            reason = "there is no checkpoint yet" if lag is None else f"the lag is {lag:.0f} s, more than {limit:g} s"
        else:
            return said("ready")
        return said(reason, HTTPStatus.SERVICE_UNAVAILABLE)

    def _write(self) -> None:
        path = self._wanted.metrics_textfile
        try:
            # Beside the file under another name, then renamed: readers never see half of it.
            write_to_textfile(path, self._registry)
            self._has_failed = False
        except OSError as fault:
            # Once: a full disk stays full for a while.
            if not self._has_failed:
                _log.warning("textfile_failed", path=path, error=str(fault))
            self._has_failed = True
