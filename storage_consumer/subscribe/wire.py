"""Canal's TCP protocol: packets of four bytes of length and a protobuf message; and its password.

The messages are described by tables of their fields: number, name and type, with ? after a field
that is sent even if it is zero, and * after a repeated one. An embedded message is told as bytes
where it is serialized on its own: on the wire they are the same.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
from enum import IntEnum
from typing import Any

from storage_consumer.errors import ConfigError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError
except ModuleNotFoundError:
    raise ConfigError(
        "canal's protocol needs protobuf: pip install 'storage-consumer[subscribe]'"
    ) from None

VERSION = 1
"""That of the protocol."""
LARGEST_REQUEST = 64 << 10
"""Most bytes of a client's packet."""
_IN_PACKET = 30.0
"""Seconds in which the rest of a packet has to follow its first byte."""


class Kind(IntEnum):
    """Types of packets."""

    HANDSHAKE = 1
    CLIENTAUTHENTICATION = 2
    ACK = 3
    SUBSCRIPTION = 4
    UNSUBSCRIPTION = 5
    GET = 6
    MESSAGES = 7
    CLIENTACK = 8
    HEARTBEAT = 11
    CLIENTROLLBACK = 12


class HostilePacket(Exception):
    """A packet that no client sends; the text is the reason."""


_IDENTITY = "1 destination string, 2 client_id string"
_FIELDS = {
    "Packet": "1 magic_number int32?, 2 version int32?, 3 type int32, 4 compression int32?, 5 body bytes",
    "Handshake": "1 communication_encoding string?, 2 seeds bytes, 3 supported_compressions int32*",
    "ClientAuth": "1 username string, 2 password bytes, 3 net_read_timeout int32?, 4 net_write_timeout int32?, "
    "5 destination string, 6 client_id string, 7 filter string, 8 start_timestamp int64",
    "Ack": "1 error_code int32?, 2 error_message string",
    "Subscription": f"{_IDENTITY}, 7 filter string",
    "Get": f"{_IDENTITY}, 3 fetch_size int32, 4 timeout int64?, 5 unit int32?, 6 auto_ack bool?",
    "Messages": "1 batch_id int64, 2 messages bytes*",
    "Decision": f"{_IDENTITY}, 3 batch_id int64",
    "Pair": "1 key string, 2 value string",
    "Header": "1 version int32?, 2 logfileName string, 3 logfileOffset int64, 4 serverId int64, 5 serverenCode string, "
    "6 executeTime int64, 7 sourceType int32?, 8 schemaName string?, 9 tableName string?, 10 eventLength int64, "
    "11 eventType int32?, 12 props Pair*, 13 gtid string",
    "Entry": "1 header Header, 2 entryType int32?, 3 storeValue bytes",
    "TransactionBegin": "1 executeTime int64, 2 transactionId string",
    "TransactionEnd": "1 executeTime int64, 2 transactionId string",
    "Column": "1 index int32?, 2 sqlType int32?, 3 name string, 4 isKey bool?, 5 updated bool?, 6 isNull bool?, "
    "8 value bytes?, 10 mysqlType string",
    "RowData": "1 beforeColumns Column*, 2 afterColumns Column*",
    "RowChange": "1 tableId int64, 2 eventType int32?, 10 isDdl bool?, 11 sql string, 12 rowDatas bytes*, 14 ddlSchemaName string",
}
"""Message → its fields; `Decision` is that of ClientAck and ClientRollback."""
_TYPES = {"int64": 3, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3


def _described() -> Any:
    """Return the classes of all messages, by name, in a pool of their own."""
    file = descriptor_pb2.FileDescriptorProto(
        name="subscribe.proto", package="subscribe", syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for each in fields.split(", "):
            number, field, kind = each.split(" ")
            made = message.field.add(
                name=field,
                number=int(number),
                type=_TYPES.get(kind.rstrip("?*"), _MESSAGE),
                label=_REPEATED if kind.endswith("*") else _OPTIONAL,
            )
            if made.type == _MESSAGE:
                made.type_name = f".subscribe.{kind.rstrip('?*')}"
            if kind.endswith("?"):
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"{field}_present")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"subscribe.{name}"))
        for name in _FIELDS
    }


MESSAGES = _described()
"""Name of a message → its class."""


def parsed(name: str, body: bytes) -> Any:
    """Return a message of a packet; raise `HostilePacket` if these bytes are none."""
    try:
        return MESSAGES[name].FromString(body)
    except DecodeError:
        raise HostilePacket(f"{len(body)} bytes that are no {name}") from None


def packet(kind: Kind, body: bytes = b"", *, versioned: bool = True) -> bytes:
    """Return a packet as it is sent, with its length.

    `versioned`: as canal sends all packets but those with entries.
    """
    version = {"version": VERSION} if versioned else {}
    data: bytes = MESSAGES["Packet"](type=kind, body=body, **version).SerializeToString()
    return len(data).to_bytes(4, "big") + data


def acknowledged(code: int = 0, text: str = "") -> bytes:
    """Return the packet for what was done, or, with a code, for what was not."""
    fields = {"error_code": code, "error_message": text} if code else {}
    return packet(Kind.ACK, MESSAGES["Ack"](**fields).SerializeToString())


def read_packet(connection: socket.socket, idle: float) -> Any:
    """Return a client's next packet; None at the end of the connection.

    `idle`: seconds that it may be silent before. Raises `HostilePacket`, and TimeoutError.
    """
    connection.settimeout(idle)
    first = connection.recv(1)
    if not first:
        return None
    deadline = time.monotonic() + _IN_PACKET
    length = int.from_bytes(first + _exactly(connection, 3, deadline), "big")
    if not 0 < length <= LARGEST_REQUEST:
        raise HostilePacket(f"a packet of {length} bytes, of which {LARGEST_REQUEST} are taken")
    found = parsed("Packet", _exactly(connection, length, deadline))
    if found.version not in (0, VERSION) or found.compression not in (0, 1):
        raise HostilePacket(
            f"version {found.version} of the protocol, or a packet with compression {found.compression}"
        )
    return found


def _exactly(connection: socket.socket, length: int, deadline: float) -> bytes:
    """Return the next bytes of a packet that has begun."""
    found = bytearray()
    while len(found) < length:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            part = connection.recv(length - len(found))
        except TimeoutError:
            part = b""
        if not part:
            raise HostilePacket(f"a packet that ends after {len(found)} of {length} bytes")
        found += part
    return bytes(found)


def is_password(answer: bytes, password: str, seed: bytes) -> bool:
    """Return whether a client's answer to a seed is that of a password, as MySQL 4.1.1 has it.

    `password`: as text, or as * and the 40 digits that MySQL's PASSWORD() gives.
    """
    try:
        given = bytes.fromhex(answer.decode("ascii"))
        stored = bytes.fromhex(password[1:]) if password[:1] == "*" else b""
    except ValueError:
        given, stored = b"", b""
    if len(stored) != hashlib.sha1().digest_size:  # noqa: S324 - the protocol's
        stored = _sha1(_sha1(password.encode()))
    mask = _sha1(seed + stored)
    once = bytes(one ^ other for one, other in zip(given, mask, strict=False))
    return len(given) == len(mask) and hmac.compare_digest(_sha1(once), stored)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()  # noqa: S324 - the protocol's
