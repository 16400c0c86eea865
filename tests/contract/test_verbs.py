"""The commands that ask the state, as processes of their own: what they print, whatever names, secrets and readers there are."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.contract.state_rigs import progress, real_rig
from tests.harness.program import ROOT
from tests.harness.servers import DatabaseServer

pytestmark = pytest.mark.server
ODD = "esc\x1b[31m\x9b\u202e\u2028red"
TSO = 469237761310720000
DIGITS = "3776"
"""A password."""


@pytest.fixture
def state(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    """A server with a state that has a table of an odd name, and a user whose password is a part of its checkpoint."""
    rig = real_rig(mariadb)
    table = progress(f"shop/{ODD}", TSO, "halted", follows=False, error=f"{ODD} is broken")
    rig.owner().progress.save(tables=[table], sequences={}, checkpoint=TSO, storage_checkpoint=TSO)
    rig.close()
    mariadb.query(f"CREATE USER 'digits'@'%' IDENTIFIED BY '{DIGITS}'")
    mariadb.query("GRANT ALL ON *.* TO 'digits'@'%'")
    yield mariadb
    mariadb.query("DROP USER 'digits'@'%'")


def words(*verb: str, port: int) -> list[str]:
    """A command as that user."""
    uri = f"mysql://digits:{DIGITS}@127.0.0.1:{port}/"
    return [sys.executable, "-m", "storage_consumer", *verb, "--downstream-uri", uri]


def said(*verb: str, server: DatabaseServer) -> subprocess.CompletedProcess[str]:
    """What a command says."""
    return subprocess.run(
        words(*verb, port=server.port), cwd=ROOT, capture_output=True, text=True, timeout=90, check=False
    )


def test_numbers_that_hold_the_password(state: DatabaseServer) -> None:
    """A document stays one, with its numbers, whatever the password is."""
    ended = said("table", "--json", server=state)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["tables"][0]["checkpoint"] == TSO


@pytest.mark.parametrize("verb", [["table"], ["table", "--json"], ["table", "pause", "--table", "shop.x"]])
def test_names_that_steer_a_terminal(state: DatabaseServer, verb: list[str]) -> None:
    """Control characters of a name are written out; a document has the name itself."""
    ended = said(*verb, server=state)
    text = ended.stdout + ended.stderr
    assert "esc\\u001b[31m\\u009b\\u202e\\u2028red" in text
    assert not [sign for sign in text if sign in ODD and not sign.isprintable()]
    if "--json" in verb:
        assert json.loads(ended.stdout)["tables"][0]["table"] == f"shop.{ODD}"


def test_reader_that_has_enough(state: DatabaseServer) -> None:
    """A reader that goes away, as ``head`` does, is no error; a full disk is reported in a line, with code 1."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        piped = subprocess.run(
            words("table", port=state.port), cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, timeout=90, check=False
        )
    assert (piped.returncode, piped.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        ended = subprocess.run(
            words("table", port=state.port), cwd=ROOT, stdout=full, stderr=subprocess.PIPE, timeout=90, check=False
        )
    assert (ended.returncode, ended.stderr.count(b"\n"), b"No space left" in ended.stderr) == (1, 1, True)


def test_interrupted() -> None:
    """Ctrl-C while a server keeps silent ends a command without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = words("table", port=server.getsockname()[1])
        asking = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        server.settimeout(60)
        met, _ = server.accept()
        asking.send_signal(signal.SIGINT)
        out, err = asking.communicate(timeout=30)
        met.close()
    assert (asking.returncode, out, err) == (130, b"", b"")
