"""Canal's protocol from the client's side, and the recorded conversations with canal's own server."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from storage_consumer.clock import Stop
from storage_consumer.subscribe.server import House, SubscribeServer
from storage_consumer.subscribe.wire import MESSAGES, Kind
from tests.harness.corpora import FIXTURES


class Recorded(NamedTuple):
    """A packet of a recorded conversation."""

    from_client: bool
    data: bytes


def conversations(client: str) -> list[list[Recorded]]:
    """Return the packets of each connection of a client, in order."""
    found: dict[int, list[Recorded]] = {}
    with tarfile.open(FIXTURES / "canal_wire" / "conversations.txz") as archive:
        file = archive.extractfile(f"wire/{client}.ndjson")
        assert file is not None
        for line in file:
            entry = json.loads(line)
            if "packet" in entry:
                packet = Recorded(entry["from"] == "client", base64.b64decode(entry["packet"]))
                found.setdefault(entry["connection"], []).append(packet)
    return list(found.values())


def scrambled(password: str, seed: bytes) -> bytes:
    """Return what a client answers to a seed, as the Java client does it."""
    once = _sha1(password.encode())
    mask = _sha1(seed + _sha1(once))
    return bytes(one ^ other for one, other in zip(once, mask, strict=True)).hex().encode()


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()  # noqa: S324 - the protocol's


class CanalClient:
    """A client that says what it is told to say."""

    def __init__(self, address: str, patience: float = 10.0) -> None:
        """Connect; the greeting has not been read."""
        host, _, port = address.rpartition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=patience)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.connection.close()

    def send(self, data: bytes) -> None:
        """Send a packet."""
        self.connection.sendall(len(data).to_bytes(4, "big") + data)

    def read(self) -> bytes:
        """Return the next packet; empty if there is none any more."""
        length = self._exactly(4)
        return self._exactly(int.from_bytes(length, "big")) if length else b""

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            try:
                part = self.connection.recv(length - len(found))
            except ConnectionError:
                part = b""
            if not part:
                return b""
            found += part
        return found

    def say(self, kind: Kind, message: str, **fields: object) -> None:
        """Send a message as a packet."""
        body = MESSAGES[message](**fields).SerializeToString()
        self.send(MESSAGES["Packet"](type=kind, body=body).SerializeToString())

    def hear(self, message: str) -> Any:
        """Return the next packet's message."""
        return MESSAGES[message].FromString(MESSAGES["Packet"].FromString(self.read()).body)

    def come_in(self, user: str = "", password: str = "") -> Any:
        """Read the greeting and say who this is; return the answer."""
        seed = self.hear("Handshake").seeds
        answer = scrambled(password, seed) if password else b""
        self.say(Kind.CLIENTAUTHENTICATION, "ClientAuth", username=user, password=answer)
        return self.hear("Ack")

    def subscribe(self, destination: str, client_id: str = "1001", **more: object) -> Any:
        """Subscribe; return the answer."""
        who = {"destination": destination, "client_id": client_id}
        self.say(Kind.SUBSCRIPTION, "Subscription", **who, **more)
        return self.hear("Ack")

    def get(self, destination: str, client_id: str = "1001", **more: object) -> Any:
        """Return the next batch."""
        who = {"destination": destination, "client_id": client_id}
        self.say(Kind.GET, "Get", **who, **more)
        return self.hear("Messages")


@contextmanager
def serving(house: House) -> Iterator[SubscribeServer]:
    """Run a server in this process, and end it."""
    server, stop = SubscribeServer(("127.0.0.1", 0)), Stop()
    thread = threading.Thread(target=server.serve, args=(house, stop))
    thread.start()
    try:
        yield server
    finally:
        stop.request()
        thread.join()
