"""Canal's protocol: our side of recorded conversations is that of canal's own server, byte for byte, and no packet harms it."""

from __future__ import annotations

import logging
import random
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from storage_consumer import telemetry
from storage_consumer.subscribe.server import MOST_CLIENTS, SubscribeServer
from storage_consumer.subscribe.wire import LARGEST_REQUEST, MESSAGES, Kind
from tests.harness.canal_wire import CanalClient, Recorded, conversations, scrambled, serving
from tests.harness.twins.destinations import NamedBatch, NamedDoor, NamedHouse, NamedPlace

CLIENTS = ("java-client-1.1.8", "canal-python-0.4")
DIFFERENCES = {
    "the seed of a greeting": "it is drawn anew for each connection; a client's answer is made again for ours",
    "the text of an error": "canal's names a channel of its framework and a class of Java; the code is the same",
}
"""What of a server's packet is not compared, and why."""


def _served(conversation: list[Recorded]) -> list[NamedBatch]:
    """Return the batches that canal's server gave in a conversation."""
    packets = [MESSAGES["Packet"].FromString(each.data) for each in conversation if not each.from_client]
    bodies = [MESSAGES["Messages"].FromString(each.body) for each in packets if each.type == Kind.MESSAGES]
    return [NamedBatch(each.batch_id, list(each.messages)) for each in bodies]


def _compared(data: bytes) -> bytes:
    """Return a server's packet without what `DIFFERENCES` names."""
    packet = MESSAGES["Packet"].FromString(data)
    if packet.type == Kind.HANDSHAKE:
        packet.body = b"seed"
    elif packet.type == Kind.ACK and packet.body:
        error = MESSAGES["Ack"].FromString(packet.body)
        packet.body = f"{error.error_code} {error.error_message.partition(': ')[0]}".encode()
    found: bytes = packet.SerializeToString()
    return found


def _answered_anew(data: bytes, recorded_seed: bytes, seed: bytes) -> bytes:
    """Return a client's packet as it would be for another seed."""
    packet = MESSAGES["Packet"].FromString(data)
    asked = MESSAGES["ClientAuth"].FromString(packet.body)
    if asked.password:
        is_right = asked.password == scrambled("canal", recorded_seed)
        asked.password = scrambled("canal" if is_right else "wrong", seed)
        packet.body = asked.SerializeToString()
    found: bytes = packet.SerializeToString()
    return found


@pytest.mark.parametrize(
    "conversation",
    [
        pytest.param((client, packets), id=f"{client}-{number}")
        for client in CLIENTS
        for number, packets in enumerate(conversations(client), 1)
    ],
)
def test_a_recorded_conversation_is_the_same(conversation: tuple[str, list[Recorded]]) -> None:
    """For the same requests come the same packets, byte for byte but for what `DIFFERENCES` names."""
    client, packets = conversation
    place = NamedPlace(_served(packets))
    users = {"canal": "canal"} if client.startswith("java") else {}
    house = NamedHouse({"shop": NamedDoor(lambda: place, users)})
    recorded_seed = seed = b""
    with serving(house) as server, CanalClient(server.address) as ours:
        for each in packets:
            packet = MESSAGES["Packet"].FromString(each.data)
            if each.from_client:
                is_greeting = packet.type == Kind.CLIENTAUTHENTICATION
                ours.send(_answered_anew(each.data, recorded_seed, seed) if is_greeting else each.data)
                continue
            heard = ours.read()
            assert _compared(heard) == _compared(each.data)
            if packet.type == Kind.HANDSHAKE:
                recorded_seed, seed = (
                    MESSAGES["Handshake"].FromString(MESSAGES["Packet"].FromString(data).body).seeds
                    for data in (each.data, heard)
                )


@pytest.fixture
def server() -> Iterator[SubscribeServer]:
    """Return a server with a destination of small batches without end, and one for users."""
    batch = NamedBatch(1, [b"entry"])
    open_door = NamedDoor(lambda: NamedPlace([batch], endless=True))
    guarded = NamedDoor(lambda: NamedPlace([]), {"reader": "*" + "0" * 40, "canal": "canal"})
    with serving(NamedHouse({"open": open_door, "guarded": guarded})) as found:
        yield found


def test_passwords(server: SubscribeServer) -> None:
    """A destination with users takes each of them by the right password only; one without takes all that came in."""
    for user, password, is_in in (
        ("canal", "canal", True),
        ("canal", "wrong", False),
        ("", "", False),
        ("reader", "x", False),
    ):
        with CanalClient(server.address) as client:
            assert not client.come_in(user, password).error_code
            assert client.subscribe("guarded").error_code == (0 if is_in else 400)
            assert not client.subscribe("open").error_code


def test_a_stored_password(server: SubscribeServer) -> None:
    """A password may be stored as MySQL's PASSWORD() gives it; somebody unknown does not get in where all destinations have users."""
    stored = "*ECDA3F2E5A4F1D0C5C5B5DBF4A7F3B3B3B0E0E0E"
    house = NamedHouse(
        {
            "guarded": NamedDoor(
                lambda: NamedPlace([]), {"canal": "*E3619321C1A937C46A0D8BD1DAC39F93B27D4458", "other": stored}
            )
        }
    )
    with serving(house) as found:
        with CanalClient(found.address) as client:
            assert not client.come_in("canal", "canal").error_code
            assert not client.subscribe("guarded").error_code
        for user, password in (("canal", "wrong"), ("nobody", "canal"), ("", ""), ("other", "canal")):
            with CanalClient(found.address) as client:
                answer = client.come_in(user, password)
                assert (answer.error_code, answer.error_message) == (400, f"auth failed for user:{user}")
                assert client.read() == b""


@pytest.mark.parametrize(
    ("kind", "message", "fields", "code", "text"),
    [
        (Kind.GET, "Get", {"destination": "open", "client_id": "1001"}, 400, "should subscribe first"),
        (
            Kind.CLIENTACK,
            "Decision",
            {"destination": "open", "client_id": "7", "batch_id": 3},
            400,
            "should subscribe first",
        ),
        (Kind.CLIENTACK, "Decision", {"destination": "open", "client_id": "7"}, 402, "batchId should assign value"),
        (Kind.GET, "Get", {"client_id": "1001"}, 401, "destination or clientId is null"),
        (Kind.SUBSCRIPTION, "Subscription", {"destination": "open"}, 401, "destination or clientId is null"),
        (Kind.SUBSCRIPTION, "Subscription", {"destination": "open", "client_id": "x"}, 400, "is no number below 32768"),
        (
            Kind.SUBSCRIPTION,
            "Subscription",
            {"destination": "none", "client_id": "1"},
            400,
            "there is no destination none",
        ),
        (Kind.MESSAGES, "Messages", {"batch_id": 1}, 400, "packet type=7 is NOT supported!"),
    ],
)
def test_wrong_requests(
    server: SubscribeServer, kind: Kind, message: str, fields: dict[str, object], code: int, text: str
) -> None:
    """A wrong request is answered with canal's code and a reason, and the conversation goes on."""
    with CanalClient(server.address) as client:
        client.come_in()
        client.say(kind, message, **fields)
        answer = client.hear("Ack")
        assert answer.error_code == code
        assert text in answer.error_message
        assert not client.subscribe("open").error_code
        assert client.get("open", fetch_size=10).batch_id == 1


def test_who_is_silent(server: SubscribeServer) -> None:
    """Neither an ack nor a rollback is answered, also not one before a subscription or one after an empty get; a heartbeat is."""
    with CanalClient(server.address) as client:
        client.come_in()
        place = {"destination": "open", "client_id": "1001"}
        client.say(Kind.CLIENTROLLBACK, "Decision", **place)
        assert not client.subscribe("open").error_code
        assert client.get("open").batch_id == 1
        client.say(Kind.CLIENTACK, "Decision", **place, batch_id=1)
        client.say(Kind.CLIENTACK, "Decision", **place, batch_id=-1)
        client.say(Kind.CLIENTROLLBACK, "Decision", **place, batch_id=1)
        client.say(Kind.HEARTBEAT, "Pair", key="any")
        assert client.hear("Pair").key == "any"


def test_a_second_client_of_a_number_waits(server: SubscribeServer) -> None:
    """It gets in when the first one has gone, also one that asks a second time; others do not wait."""
    with CanalClient(server.address) as second:
        with CanalClient(server.address) as first, CanalClient(server.address) as other:
            for each in (first, second, other):
                each.come_in()
            first.subscribe("open")
            first.subscribe("open")
            other.subscribe("open", "1002")
            second.connection.settimeout(0.8)
            with pytest.raises(TimeoutError):
                second.subscribe("open")
            assert server.clients().keys() == {("open", 1001), ("open", 1002)}
        second.connection.settimeout(10)
        assert not second.hear("Ack").error_code


def test_a_standby_sends_a_client_on() -> None:
    """A server that has no destination greets with an error, so that a client goes on to its next address."""
    with serving(NamedHouse({}, "orders is served by 10.0.0.2:11111")) as found, CanalClient(found.address) as client:
        answer = client.hear("Ack")
        assert (answer.error_code, answer.error_message) == (400, "orders is served by 10.0.0.2:11111")
        assert client.read() == b""


_SAID = [
    "a packet of",
    "bytes that are no",
    "that ends after",
    "with compression",
    "that nobody knows yet",
    "reset",
    "400",
]


def _hostile(draw: random.Random) -> bytes:
    """Return bytes that no client sends, with a length before them or not."""
    noise = draw.randbytes(draw.randrange(1, 200))
    packet = MESSAGES["Packet"](
        type=draw.choice([*Kind, 0, 99, -1]),
        body=draw.choice([noise, b"", b"\xff" * 8]),
        version=draw.choice([0, 1, 2, -1]),
    ).SerializeToString()
    choices: list[bytes] = [
        noise,
        len(noise).to_bytes(4, "big") + noise,
        (len(noise) + 5).to_bytes(4, "big") + noise,
        draw.choice([0, LARGEST_REQUEST + 1, 0x7FFFFFFF, 0xFFFFFFFF]).to_bytes(4, "big") + noise,
        len(packet).to_bytes(4, "big") + packet,
    ]
    return draw.choice(choices)


@pytest.mark.alone
def test_hostile_packets(server: SubscribeServer, caplog: pytest.LogCaptureFixture) -> None:
    """After 10,000 of them, before and after the password, the server answers others, and has no more memory and no more threads than before."""
    draw = random.Random(37)  # noqa: S311 - hostile, not secret
    reasons, threads = list[str](), threading.active_count()

    def hear(event: str, level: int, fields: object) -> None:
        if event == "client_closed":
            assert isinstance(fields, dict)
            reasons.append(fields["reason"])

    def attack(count: int) -> None:
        for number in range(count):
            with CanalClient(server.address) as client:
                if number % 2:
                    client.come_in()
                else:
                    client.hear("Handshake")
                client.connection.sendall(_hostile(draw))
                with suppress(OSError):
                    client.connection.shutdown(socket.SHUT_WR)
                while client.read():
                    pass

    caplog.set_level(
        logging.CRITICAL, logger=telemetry.ROOT
    )  # what pytest keeps of the log is no memory of the server's
    silence = telemetry.listen(hear)
    try:
        attack(1000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        attack(9000)
        with CanalClient(server.address) as client:
            assert not client.come_in().error_code
            assert not client.subscribe("open").error_code
    finally:
        silence()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 << 10
    assert threading.active_count() <= threads + 2
    assert len(reasons) > 4000
    assert {each for each in reasons if not any(word in each for word in _SAID)} == set()


@pytest.mark.alone
def test_slow_clients() -> None:
    """200 clients that read nothing of what they asked for do not hold up another one, nor the end."""
    large = NamedBatch(1, [bytes(1 << 20)])
    house = NamedHouse({"open": NamedDoor(lambda: NamedPlace([large], endless=True))})
    with serving(house) as found:
        slow = [CanalClient(found.address) for _ in range(200)]
        for number, each in enumerate(slow):
            each.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.come_in()
            each.subscribe("open", str(number))
            for _ in range(8):
                each.say(Kind.GET, "Get", destination="open", client_id=str(number))
        with CanalClient(found.address) as quick:
            quick.come_in()
            quick.subscribe("open", "1001")
            begin = time.monotonic()
            for _ in range(20):
                assert quick.get("open").batch_id == 1
            assert time.monotonic() - begin < 5
        begin = time.monotonic()
    assert time.monotonic() - begin < 2
    for each in slow:
        each.connection.close()


def test_too_many_clients(server: SubscribeServer) -> None:
    """Beyond a number clients are told that there are too many, and there is room again when some have gone."""
    crowd = [CanalClient(server.address) for _ in range(MOST_CLIENTS)]
    for each in crowd:
        each.hear("Handshake")
    with CanalClient(server.address) as one_more:
        assert "no more are let in" in one_more.hear("Ack").error_message
    for each in crowd:
        each.connection.close()
    time.sleep(1)
    with CanalClient(server.address) as client:
        assert not client.come_in().error_code
