"""The server of canal's protocol: one thread for each client, one place for each client's number."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from storage_consumer.clock import StopSignal
from storage_consumer.errors import ConfigError
from storage_consumer.subscribe.conversation import Conversation, Identity, Refused, Subscriber
from storage_consumer.telemetry import Log

_log = Log("subscribe")
_LOOK_UP = 0.5
"""Seconds between looks at whether to end, and whether a client that waits is still there."""
_ENDING = 1.5
"""Seconds that all clients together have to end."""
MOST_CLIENTS = 1000
_BACKLOG = 256
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""So that a client whose machine is gone gives back its place after a minute."""


class Door(Protocol):
    """A destination, as clients come to it."""

    @property
    def users(self) -> Mapping[str, str]:
        """Name → password, or * and the digits of MySQL's PASSWORD(); empty: everybody may come."""
        ...

    def subscriber(self, client_id: int, filter_text: str) -> Subscriber:
        """Return a client's place."""
        ...


class House(Protocol):
    """All destinations."""

    def doors(self) -> Mapping[str, Door]:
        """Return those there are now, by name."""
        ...

    def standby(self) -> str:
        """Return why none of them can be had here, and where; empty if one can."""
        ...


class SubscribeServer:
    """Listens, and lets clients in."""

    _house: House

    def __init__(self, address: tuple[str, int]) -> None:
        """Listen on an address; raise `ConfigError` if that cannot be done."""
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError as fault:
            raise ConfigError(
                f"--listen {address[0]}:{address[1]}: {fault.strerror or fault}; give an address of this machine and a free port"
            ) from fault
        self._guests: set[Conversation] = set()
        self._taken: dict[Identity, Conversation] = {}
        self._changed = threading.Condition()
        self._is_local = ipaddress.ip_address(self._listener.getsockname()[0]).is_loopback

    @property
    def address(self) -> str:
        """Where it listens: host and port."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def clients(self) -> Mapping[Identity, str]:
        """Return who is connected, with the addresses."""
        with self._changed:
            return {place: who.peer for place, who in self._taken.items()}

    def serve(self, house: House, stop: StopSignal) -> None:
        """Let clients in until `stop` is requested; then end all conversations."""
        self._house = house
        self._listener.settimeout(_LOOK_UP)
        threads = list[threading.Thread]()
        while not stop.requested.is_set():
            threads = [thread for thread in threads if thread.is_alive()]
            with suppress(TimeoutError, ConnectionError):
                connection, peer = self._listener.accept()
                threads.append(self._welcome(connection, f"{peer[0]}:{peer[1]}"))
        self._listener.close()
        with self._changed:
            guests = list(self._guests)
        for guest in guests:
            guest.close()
        deadline = time.monotonic() + _ENDING
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _welcome(self, connection: socket.socket, peer: str) -> threading.Thread:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        guest = Conversation(connection, peer, self)
        with self._changed:
            self._guests.add(guest)
        thread = threading.Thread(target=self._talk, args=(guest,), name=peer, daemon=True)
        thread.start()
        return thread

    def _talk(self, guest: Conversation) -> None:
        try:
            guest.run()
        finally:
            with self._changed:
                self._guests.discard(guest)

    def stands_by(self) -> str:
        """Return why no client can come in now; empty if it can."""
        if len(self._guests) > MOST_CLIENTS:
            return f"{MOST_CLIENTS} clients are connected, and no more are let in"
        return self._house.standby()

    def admits(self, who: Conversation) -> bool:
        """Return whether a client may come in, for at least one destination."""
        return any(self._opens(door, who) for door in self._house.doors().values())

    def _opens(self, door: Door, who: Conversation) -> bool:
        return who.is_one_of(door.users) if door.users else self._is_local

    def enter(self, who: Conversation, place: Identity, filter_text: str) -> Subscriber:
        """Return a client's place once no other connection has it."""
        with self._changed:
            while self._taken.get(place, who) is not who:
                self._changed.wait(_LOOK_UP)
                if who.is_gone():
                    raise ConnectionError(
                        "the client went while another one of its number was connected"
                    )
            self._taken[place] = who
        try:
            found = self._door(who, place[0]).subscriber(place[1], filter_text)
        except BaseException:
            self.leave(who, place)
            raise
        _log.info("client_subscribed", destination=place[0], client=place[1], peer=who.peer)
        return found

    def _door(self, who: Conversation, name: str) -> Door:
        door = self._house.doors().get(name)
        if door is None:
            raise Refused(f"there is no destination {name}")
        if not self._opens(door, who):
            raise Refused(
                f"auth failed for user:{who.user}"
                if door.users
                else f"{name} has no users, without whom it is for clients of a loopback address only"
            )
        return door

    def leave(self, who: Conversation, place: Identity | None = None) -> None:
        """Give back one place of a connection, or all."""
        with self._changed:
            for each in [place] if place else list(self._taken):
                if self._taken.get(each) is who:
                    del self._taken[each]
            self._changed.notify_all()
