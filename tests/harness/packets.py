"""The packets of MySQL's protocol, as a server of a test sends and takes them."""

from __future__ import annotations

import socket
import struct


def send(client: socket.socket, number: int, content: bytes) -> None:
    """Send one packet; its number is taken modulo 256."""
    client.sendall(struct.pack("<I", len(content))[:3] + bytes([number % 256]) + content)


def receive(client: socket.socket) -> tuple[int, bytes]:
    """Take one packet: its number and content. Raises `ConnectionResetError` where the client goes away."""
    head = _exactly(client, 4)
    return head[3], _exactly(client, int.from_bytes(head[:3], "little"))


def _exactly(client: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = client.recv(size - len(content))
        if not more:
            raise ConnectionResetError
        content += more
    return content
