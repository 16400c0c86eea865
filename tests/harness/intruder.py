"""Another user of the machine, who tries the doors of a Spark session: its TCP ports, its sockets and its files.

The bytes are those of Spark's own protocol, so that a session that keeps nobody out takes them: a test tries that as well.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

NOBODY = 65534
_RPC_REQUEST, _RPC_RESPONSE = 3, 4
_OPEN_BLOCKS = 0
_SECONDS = 3.0


def asking_for(block: str) -> bytes:
    """What an executor sends that wants a block."""
    return bytes([_OPEN_BLOCKS]) + _sized(b"app") + _sized(b"driver") + struct.pack(">I", 1) + _sized(block.encode())


def calling(session: SparkSession) -> bytes:
    """A Java object for the driver, as the JVM of this session serializes it."""
    jvm: Any = session.sparkContext._jvm
    serializer = jvm.org.apache.spark.serializer.JavaSerializer(session.sparkContext._conf._jconf).newInstance()
    exists = getattr(jvm.org.apache.spark.rpc.netty, "RpcEndpointVerifier$CheckExistence")("MapOutputTracker")
    content = bytes(serializer.serialize(exists, jvm.scala.reflect.ClassTag.Any()).array())
    host, name = b"127.0.0.1", b"endpoint-verifier"
    receiver = struct.pack(">?H", True, len(host)) + host + struct.pack(">IH", 1, len(name)) + name  # noqa: FBT003 - a byte
    return b"\x00" + receiver + content


def _sized(word: bytes) -> bytes:
    return struct.pack(">I", len(word)) + word


def taken(port: int, body: bytes) -> bool:
    """Whether Spark at this port did what it was asked; False where it refused, hung up, or said nothing."""
    frame = struct.pack(">QBQI", 8 + 1 + 8 + 4 + len(body), _RPC_REQUEST, 1, len(body)) + body
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
        connection.sendall(frame)
        answer = connection.recv(9)
        return len(answer) > 8 and answer[8] == _RPC_RESPONSE
    return False


def obeyed(port: int) -> bool:
    """Whether a Py4J gateway at this port runs a command without its token."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as connection:
        connection.sendall(b"r\nu\njava.lang.System\nrj\ne\n")
        return connection.recv(2)[1:] == b"y"
    return False


def speaks(path: str) -> bool:
    """Whether a socket in the file system lets one in."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError as error:
            return error.errno not in (errno.EACCES, errno.EPERM, errno.ENOENT)
    return True


def readable(path: str) -> bool:
    """Whether a file can be read, or a folder listed."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def as_nobody(deed: Callable[[], object]) -> Any:
    """What `deed` gives, as JSON carries it, where another user does it. Needs root."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(into, json.dumps(deed()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out, "rb") as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the other user's process failed"
    return json.loads(said)


def ports_of(processes: Iterable[int]) -> set[int]:
    """The TCP ports at which these processes listen."""
    known = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                known[f"socket:[{words[9]}]"] = int(words[1].rpartition(":")[2], 16)
    return {known[one] for one in opened_by(processes) & known.keys()}


def sockets_of(processes: Iterable[int]) -> set[str]:
    """Paths of the sockets that these processes have in the file system."""
    own = opened_by(processes)
    lines = (line.split() for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines())
    return {words[7] for words in lines if len(words) > 7 and f"socket:[{words[6]}]" in own}


def opened_by(processes: Iterable[int]) -> set[str]:
    """What the file descriptors of these processes stand for."""
    found = set()
    for entry in (entry for pid in processes for entry in Path(f"/proc/{pid}").glob("fd/*")):
        with suppress(OSError):  # it has just ended
            found.add(str(entry.readlink()))
    return found
