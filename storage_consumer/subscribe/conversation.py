"""One client's conversation by canal's protocol: what is answered, and who is silent where.

A subscription, a get and the end of a subscription have an answer; an ack and a rollback have none
if they succeed. The error of one that fails is sent at once, and a client takes it for the answer
to its next request, as with canal's own server.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Protocol

from storage_consumer.errors import NotTheWriter, StorageConsumerError
from storage_consumer.subscribe import wire
from storage_consumer.subscribe.wire import MESSAGES, HostilePacket, Kind
from storage_consumer.telemetry import Log

_log = Log("subscribe")
_SEED = 8
_GREETING = 10.0
"""Seconds in which a client has to say who it is."""
_IDLE = 3600.0
"""Seconds that a client may be silent, unless it asks for other ones."""
_UNITS = (1e-9, 1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0)
"""Seconds of Java's units of time, by their number."""
_MILLISECONDS = 2
_ROWS = 1000
"""Entries of a get that names no number."""
_FAULT, _NAMELESS, _NO_BATCH = 400, 401, 402
"""Canal's error codes."""
_NO_MORE = -1
_SHORT = range(1 << 15)
"""Numbers that a client may have."""


Identity = tuple[str, int]
"""Destination and number of a client."""


class Subscriber(Protocol):
    """A client's place in a destination; raises `StorageConsumerError`."""

    def get(
        self, size: int, timeout: float | None, gone: Callable[[], bool]
    ) -> tuple[int, Iterable[bytes]]:
        """Return number and serialized entries of the next batch, marked; -1 if there is none.

        `timeout`: see `Subscription`. `gone`: whether nobody waits for it any more.
        """
        ...

    def ack(self, batch_id: int) -> None:
        """Take a batch as done."""
        ...

    def rollback(self, batch_id: int | None = None) -> None:
        """Forget the marks."""
        ...

    def unsubscribe(self) -> None:
        """Forget the client."""
        ...


class Hall(Protocol):
    """What conversations share."""

    def stands_by(self) -> str:
        """Return which server has the destinations, if this one has none."""
        ...

    def admits(self, who: Conversation) -> bool:
        """Return whether a client may come in, for at least one destination."""
        ...

    def enter(self, who: Conversation, place: Identity, filter_text: str) -> Subscriber:
        """Return a client's place once no other connection has it.

        Raises what says why it cannot have it, and ConnectionError if it goes while it waits.
        """
        ...

    def leave(self, who: Conversation, place: Identity | None = None) -> None:
        """Give back one place of a connection, or all."""
        ...


class Refused(StorageConsumerError):
    """A request is answered with an error, and the conversation goes on."""

    def __init__(self, text: str, code: int = _FAULT) -> None:
        """Take the text for the client."""
        super().__init__(text)
        self.code = code


class Conversation:
    """The conversation with one client."""

    def __init__(self, connection: socket.socket, peer: str, hall: Hall) -> None:
        """Talk on a connection; `peer`: the client's address."""
        self.peer, self._hall = peer, hall
        self._connection = connection
        self._seed = os.urandom(_SEED)
        self.user, self._answer = "", b""
        self._places: dict[Identity, Subscriber] = {}
        self._rolled_back: set[Identity] = set()
        """Rollbacks before a subscription: they take effect with it."""
        self._idle = self._sending = _GREETING
        self.is_over = False

    def run(self) -> None:
        """Talk until one side ends it; then close the connection."""
        reason = ""
        try:
            if why_not := self._hall.stands_by():
                self._refuse(why_not)
                return
            greeting = MESSAGES["Handshake"](seeds=self._seed).SerializeToString()
            self._send(wire.packet(Kind.HANDSHAKE, greeting))
            if self._authenticated(wire.read_packet(self._connection, self._idle)):
                while (request := wire.read_packet(self._connection, self._idle)) is not None:
                    self._respond(request)
        except HostilePacket as fault:
            reason = str(fault)
            with suppress(OSError):
                self._refuse(reason)
        except TimeoutError:
            reason = "silence"
        except (NotTheWriter, ConnectionError) as fault:
            reason = str(fault)
        except OSError as fault:
            # Closed by the end of the program.
            reason = "" if self.is_over else str(fault)
        finally:
            self._hall.leave(self)
            self.close()
        if reason:
            _log.warning("client_closed", peer=self.peer, reason=reason)

    def close(self) -> None:
        """End the conversation; also called from another thread."""
        self.is_over = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def is_gone(self) -> bool:
        """Return whether the client has closed the connection."""
        if self.is_over:
            return True
        try:
            readable, _, _ = select.select([self._connection], [], [], 0)
            return bool(readable) and not self._connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def is_one_of(self, users: Mapping[str, str]) -> bool:
        """Return whether the client is one of these users, by its password."""
        return self.user in users and wire.is_password(self._answer, users[self.user], self._seed)

    def _authenticated(self, packet: Any) -> bool:
        if packet is None:
            return False
        if packet.type != Kind.CLIENTAUTHENTICATION:
            raise HostilePacket(
                f"a packet of type {packet.type} from a client that nobody knows yet"
            )
        asked = wire.parsed("ClientAuth", packet.body)
        self.user, self._answer = asked.username, asked.password
        if not self._hall.admits(self):
            self._refuse(f"auth failed for user:{asked.username}")
            _log.warning("client_refused", peer=self.peer, user=asked.username)
            return False
        self._idle = asked.net_read_timeout / 1000 if asked.net_read_timeout > 0 else _IDLE
        self._sending = asked.net_write_timeout / 1000 if asked.net_write_timeout > 0 else _IDLE
        if asked.destination and asked.client_id:
            self._subscribe(asked)
        else:
            self._send(wire.acknowledged())
        return True

    def _respond(self, packet: Any) -> None:
        """Answer a request."""
        try:
            self._answer_to(packet)
        except NotTheWriter as fault:
            # The client goes on to the server that has the destination now.
            self._refuse(str(fault))
            raise
        except StorageConsumerError as fault:
            self._refuse(
                f"something goes wrong with channel: {self.peer}, exception: {fault}",
                fault.code if isinstance(fault, Refused) else _FAULT,
            )

    def _answer_to(self, packet: Any) -> None:
        if packet.type == Kind.HEARTBEAT:
            self._send(wire.packet(Kind.HEARTBEAT, packet.body))
            return
        if packet.type not in self._REQUESTS:
            raise Refused(f"packet type={packet.type} is NOT supported!")
        name, answer = self._REQUESTS[packet.type]
        asked = wire.parsed(name, packet.body)
        if not asked.destination or not asked.client_id:
            raise Refused("destination or clientId is null", _NAMELESS)
        answer(self, asked)

    def _subscribe(self, asked: Any) -> None:
        who = _identity(asked)
        if who not in self._places:
            self._places[who] = self._hall.enter(self, who, asked.filter)
        if who in self._rolled_back:
            self._rolled_back.discard(who)
            self._places[who].rollback()
        self._send(wire.acknowledged())

    def _unsubscribe(self, asked: Any) -> None:
        who = _identity(asked)
        self._place(asked).unsubscribe()
        self._hall.leave(self, who)
        del self._places[who]
        self._send(wire.acknowledged())

    def _get(self, asked: Any) -> None:
        place = self._place(asked)
        size = asked.fetch_size if asked.fetch_size > 0 else _ROWS
        timeout = None
        if asked.timeout >= 0 and asked.HasField("timeout"):
            unit = asked.unit if asked.HasField("unit") else _MILLISECONDS
            if not 0 <= unit < len(_UNITS):
                raise Refused(f"there is no unit of time {unit}")
            timeout = asked.timeout * _UNITS[unit]
        number, entries = place.get(size, timeout, self.is_gone)
        body = MESSAGES["Messages"](batch_id=number, messages=entries).SerializeToString()
        self._send(wire.packet(Kind.MESSAGES, body, versioned=number == _NO_MORE))
        if asked.auto_ack and number != _NO_MORE:
            place.ack(number)

    def _ack(self, asked: Any) -> None:
        if not asked.batch_id:
            raise Refused("batchId should assign value", _NO_BATCH)
        # The last get had nothing: no batch, so nothing to acknowledge.
        if asked.batch_id != _NO_MORE:
            self._place(asked).ack(asked.batch_id)

    def _roll_back(self, asked: Any) -> None:
        who = _identity(asked)
        if who in self._places:
            self._places[who].rollback(asked.batch_id or None)
        elif not asked.batch_id:
            self._rolled_back.add(who)

    _REQUESTS: ClassVar[Mapping[int, tuple[str, Callable[[Conversation, Any], None]]]] = {
        Kind.SUBSCRIPTION: ("Subscription", _subscribe),
        Kind.UNSUBSCRIPTION: ("Subscription", _unsubscribe),
        Kind.GET: ("Get", _get),
        Kind.CLIENTACK: ("Decision", _ack),
        Kind.CLIENTROLLBACK: ("Decision", _roll_back),
    }
    """Type of a request → its message, and what answers it."""

    def _place(self, asked: Any) -> Subscriber:
        found = self._places.get(_identity(asked))
        if found is None:
            raise Refused(
                f"clientId:{asked.client_id} of {asked.destination} should subscribe first"
            )
        return found

    def _refuse(self, text: str, code: int = _FAULT) -> None:
        self._send(wire.acknowledged(code, text))

    def _send(self, data: bytes) -> None:
        self._connection.settimeout(self._sending)
        self._connection.sendall(data)


def _identity(asked: Any) -> Identity:
    """Return destination and number of a client; raise `Refused` for no number."""
    text: str = asked.client_id
    if not (text.isascii() and text.isdigit() and int(text) in _SHORT):
        raise Refused(f"clientId {text!r} is no number below {len(_SHORT)}")
    return asked.destination, int(text)
