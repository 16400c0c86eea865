"""The command `serve`: a server of canal's protocol, until a signal arrives."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from storage_consumer.cli.endings import Answer
from storage_consumer.cli.verbs import ServeFlags
from storage_consumer.clock import Stop
from storage_consumer.errors import ConfigError
from storage_consumer.session import Session
from storage_consumer.subscribe.cursors import Cursors
from storage_consumer.subscribe.destinations import House, of_folder
from storage_consumer.subscribe.entry_packets import EntryPackets
from storage_consumer.subscribe.server import SubscribeServer
from storage_consumer.telemetry import Log

_log = Log("subscribe")
_LISTEN = "127.0.0.1:11111"


def answer_serve(own: ServeFlags, session: Session) -> Answer:
    """Serve clients until SIGTERM or SIGINT; the answer itself is empty.

    Raises `ConfigError` for wrong arguments, and `TargetUnavailable` if the positions cannot be
    read at the start.
    """
    if own.meta_uri is None or own.destinations is None:
        missing = "--meta-uri" if own.meta_uri is None else "--destinations"
        raise ConfigError(f"{missing} is missing; `storage-consumer serve --help` shows an example")
    if not Path(own.destinations).is_dir():
        raise ConfigError(f"--destinations {own.destinations}: there is no such folder")
    host, _, port = (own.listen or _LISTEN).rpartition(":")
    server = SubscribeServer((host.strip("[]"), int(port)))
    wanted = of_folder(Path(own.destinations), session.given)
    with (
        Stop() as stop,
        closing(Cursors(own.meta_uri, session.environ)) as cursors,
        closing(House(cursors, wanted, EntryPackets, server.address)) as house,
    ):
        _log.info("serving", address=server.address)
        server.serve(house, stop)
    return Answer("")
