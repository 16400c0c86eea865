"""Destinations: what clients subscribe to, and the process that serves them."""

from __future__ import annotations

import os
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic

from storage_consumer.bucket.storage import Storage
from storage_consumer.changes.reading import Feed
from storage_consumer.clock import SystemClock
from storage_consumer.config.load import Loaded
from storage_consumer.driver.lease import identity
from storage_consumer.errors import ConfigError, LeaseHeld, StorageConsumerError
from storage_consumer.session import Session
from storage_consumer.subscribe.client import Client, Limits, Pack, T
from storage_consumer.subscribe.cursors import Cursor, Cursors
from storage_consumer.subscribe.entries import KINDS, Placed, Selection, entries, merged
from storage_consumer.subscribe.marks import Position
from storage_consumer.telemetry import Log

_log = Log("subscribe")
LEASE = 10.0
"""Seconds that a destination stays with a process that does not say that it is alive."""
_LOOK = 0.2
_OWN = {
    *("upstream_uri", "filter", "black_filter", "kinds", "ddl_isolation"),
    *("buffer_size", "buffer_memory", "users", "start_ts"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSettings:
    """What a destination's file says."""

    name: str
    uris: tuple[str, ...]
    """Buckets; of several the changes come merged by commit-ts."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Of the buckets, as other commands take them."""
    filter: str = ""
    """Canal's regular expressions for ``schema.table``; empty for every table."""
    black_filter: str = ""
    kinds: tuple[str, ...] = KINDS
    start_ts: int = 0
    """Where a client begins that was never there: behind this commit-ts."""
    users: Mapping[str, str] = field(default_factory=dict)
    """Name → password, or * and the digits of MySQL's PASSWORD(); empty: everybody may come."""
    limits: Limits


def destination_settings(
    name: str, given: Mapping[str, Any], options: Mapping[str, object]
) -> DestinationSettings:
    """Return the settings of a destination; raise `ConfigError`.

    `given`: key → value of its file, with underscores. `options`: of the command, which the file
    may replace.
    """
    uris: Any = given.get("upstream_uri") or options.get("upstream_uri")
    if not uris:
        raise ConfigError(f"destination {name}: give upstream-uri, here or with the command")
    bucket = {key: value for key, value in given.items() if key not in _OWN}
    limits = Limits(
        entries=int(given.get("buffer_size", 16384)),
        memory=int(given.get("buffer_memory", 64 << 20)),
        ddl_isolation=bool(given.get("ddl_isolation", False)),
    )
    found = DestinationSettings(
        name=name,
        uris=(uris,) if isinstance(uris, str) else tuple(uris),
        options={
            key: value for key, value in {**options, **bucket}.items() if key != "upstream_uri"
        },
        filter=given.get("filter", ""),
        black_filter=given.get("black_filter", ""),
        kinds=tuple(given.get("kinds", KINDS)),
        start_ts=int(given.get("start_ts", 0)),
        users=given.get("users", {}),
        limits=limits,
    )
    Selection((found.filter,), found.black_filter, found.kinds)
    return found


class Destination(Generic[T]):
    """A destination that this process has, and its clients."""

    def __init__(
        self,
        settings: DestinationSettings,
        cursors: Cursors,
        packing: Callable[[], Pack[T]],
    ) -> None:
        """Serve the clients that `cursors` knows. `packing`: makes what packs entries."""
        self.settings, self._cursors, self._packing = settings, cursors, packing
        self.users = settings.users
        self._clients = dict[int, Client[T]]()
        self._lock = threading.Lock()

    def subscriber(self, client_id: int, filter_text: str = "") -> Client[T]:
        """Return a client where it stopped, with open batches if its filter is the same.

        An empty filter is the one that it had last. Raises `ConfigError`, `StorageUnavailable`,
        `TargetUnavailable` for the cursors' database, and `LeaseLost`.
        """
        with self._lock:
            found = self._clients.get(client_id)
            if found and found.is_alive and filter_text in ("", found.cursor.filter):
                return found
            if found:
                found.close()
            start = self.settings.start_ts
            cursor = self._cursors.load(self.settings.name, client_id) or Cursor(
                Position(start, start), 1, ""
            )
            cursor = cursor._replace(filter=filter_text or cursor.filter)
            chosen = (self.settings.filter, cursor.filter)
            selection = Selection(chosen, self.settings.black_filter, self.settings.kinds)
            buckets = [self._opened(uri) for uri in self.settings.uris]
            self._clients[client_id] = Client(
                (self.settings.name, client_id),
                self._cursors,
                cursor,
                partial(_read, buckets, selection),
                self._packing(),
                self.settings.limits,
            )
            return self._clients[client_id]

    def _opened(self, uri: str) -> tuple[Loaded, Storage]:
        return Session({**self.settings.options, "upstream_uri": uri}, os.environ).open_bucket()

    def close(self) -> None:
        """Stop reading for all clients."""
        with self._lock:
            for client in self._clients.values():
                client.close()


def _read(
    buckets: list[tuple[Loaded, Storage]],
    selection: Selection,
    position: Position,
    wait: Callable[[], bool],
) -> Iterator[Placed]:
    """Yield the entries of all buckets behind a position."""
    feeds = [
        Feed(storage, each.config.upstream, SystemClock(), each.config.selecting.rules)
        for each, storage in buckets
    ]
    tuning = buckets[0][0].config.tuning
    return merged([entries(feed, position, wait, selection, tuning) for feed in feeds])


class House(Generic[T]):
    """All destinations of a process. A thread keeps their leases, and notices what changes."""

    def __init__(
        self,
        cursors: Cursors,
        wanted: Callable[[], Mapping[str, DestinationSettings]],
        packing: Callable[[], Pack[T]],
        address: str = "",
    ) -> None:
        """Take the destinations that are `wanted` from now on, asked again and again.

        `address`: where clients reach this process.
        """
        self._cursors, self._wanted, self._packing = cursors, wanted, packing
        self._holder = identity(time.time())
        self._address = address
        self._doors = dict[str, Destination[T]]()
        self._others = dict[str, str]()
        """Destination → who has it, or why it cannot be served."""
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._look()
        self._thread = threading.Thread(target=self._run, name="subscribe-leases", daemon=True)
        self._thread.start()

    def doors(self) -> Mapping[str, Destination[T]]:
        """Return the destinations that this process has now."""
        return self._doors.copy()

    def door(self, name: str, wait: float) -> Destination[T]:
        """Return a destination once it is ours; raise `LeaseHeld` if it is not in `wait` seconds."""
        deadline = time.monotonic() + wait
        while name not in self._doors:
            if time.monotonic() > deadline:
                raise LeaseHeld(self.standby())
            self._ends.wait(_LOOK)
            self._look()
        return self._doors[name]

    def standby(self) -> str:
        """Return why none of them can be had here; empty if one can."""
        if self._doors:
            return ""
        others = "; ".join(f"{name}: {why}" for name, why in sorted(self._others.items()))
        return f"this server has no destination: {others or 'there is none'}"

    def close(self) -> None:
        """Give all destinations back."""
        self._ends.set()
        self._thread.join()
        for name, door in self._doors.items():
            door.close()
            self._cursors.release(name)
        self._doors.clear()

    def _run(self) -> None:
        while not self._ends.wait(LEASE / 5):
            try:
                self._look()
            except StorageConsumerError as fault:
                # Whoever writes a cursor is told; without answer the leases run out.
                _log.warning("retry", what="leases of destinations", error=str(fault))

    def _look(self) -> None:
        with self._lock:
            self._look_alone(self._wanted())

    def _look_alone(self, wanted: Mapping[str, DestinationSettings]) -> None:
        for name, door in self.doors().items():
            is_kept = wanted.get(name) == door.settings and self._cursors.renew(name, LEASE)
            if not is_kept:
                self._leave(name)
        for name, settings in wanted.items():
            if name in self._doors:
                continue
            other = self._cursors.acquire(name, self._holder, self._address, LEASE)
            if other:
                self._others[name] = f"{other} has it"
            else:
                self._others.pop(name, None)
                self._doors[name] = Destination(settings, self._cursors, self._packing)
                _log.info("destination_served", destination=name)

    def _leave(self, name: str) -> None:
        self._doors.pop(name).close()
        self._cursors.release(name)
        _log.info("destination_left", destination=name)


def of_folder(
    folder: Path, options: Mapping[str, object]
) -> Callable[[], Mapping[str, DestinationSettings]]:
    """Return what tells the destinations of a folder's ``NAME.toml`` each time that it is called.

    A file that cannot be used is logged once, and what it said before stays. Raises `ConfigError`
    for a folder that cannot be read.
    """
    known = dict[str, tuple[bytes, DestinationSettings | None]]()

    def look() -> Mapping[str, DestinationSettings]:
        try:
            found = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.toml"))}
        except OSError as fault:
            raise ConfigError(f"--destinations {folder}: {fault.strerror}") from None
        for name in known.keys() - found.keys():
            del known[name]
        for name, content in found.items():
            before, settings = known.get(name, (None, None))
            if content == before:
                continue
            try:
                table = {
                    key.replace("-", "_"): value
                    for key, value in tomllib.loads(content.decode()).items()
                }
                settings = destination_settings(name, table, options)
            except (ConfigError, ValueError, TypeError, AttributeError) as fault:
                _log.error("destination_unusable", destination=name, reason=str(fault))
            known[name] = content, settings
        return {name: settings for name, (_, settings) in known.items() if settings is not None}

    return look
