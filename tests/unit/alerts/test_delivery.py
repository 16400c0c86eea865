"""Documents reach commands and addresses, or their loss is logged; nobody waits."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from storage_consumer import telemetry
from storage_consumer.alerts import calling
from storage_consumer.alerts.calling import CallFailed, check_commands
from storage_consumer.alerts.delivery import LONGEST_VARIABLE, MOST_WAITING, Delivery
from storage_consumer.alerts.document import Document, cut
from storage_consumer.clock import SystemClock
from storage_consumer.config.hooks import Hook
from storage_consumer.errors import ConfigError
from tests.harness.certificates import Authority
from tests.harness.hook_server import HookServer, hook_server
from tests.harness.waiting import wait_until

DOCUMENT: Document = {"event": "table_halted", "table": "d.a", "error": "the password is opensesame\nand more"}
SLACK = "/services/T000/B000/verysecrettoken"


class Hasty(SystemClock):
    """A clock whose pauses are over at once, and noted."""

    def __init__(self) -> None:
        """No pause yet."""
        self.pauses: list[float] = []

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Note it."""
        self.pauses.append(seconds)
        return event.is_set()


@pytest.fixture(autouse=True)
def _secret(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """One secret is registered, and all is logged."""
    caplog.set_level(logging.DEBUG, logger="storage_consumer")
    telemetry.register_secret("opensesame")
    yield
    telemetry.forget_secrets()


@pytest.fixture
def server() -> Iterator[HookServer]:
    """A server that takes everything."""
    with hook_server() as found:
        yield found


def _lives(pid: int) -> bool:
    """Whether a process is there and not only waits for its parent."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def _deliver(text: str, *documents: Document, wait: float = 30.0) -> Hasty:
    clock = Hasty()
    delivery = Delivery(Hook(text=text), clock)
    for document in documents or (DOCUMENT,):
        delivery.send(document)
    delivery.close(time.monotonic() + wait)
    return clock


def _script(folder: Path, text: str) -> str:
    path = folder / "hook.py"
    path.write_text(f"import json, os, sys, time\n{text}\n", encoding="utf-8")
    return f"{sys.executable} {path}"


def test_an_address_gets_json(server: HookServer, caplog: pytest.LogCaptureFixture) -> None:
    """As a POST, in order, with secrets blanked; the log has neither path nor query of the address."""
    second = {**DOCUMENT, "event": "table_resumed"}
    _deliver(server.address(SLACK + "?channel=ops"), DOCUMENT, second)
    assert [each["event"] for each in server.got] == ["table_halted", "table_resumed"]
    assert server.got[0]["error"] == "the password is ***\nand more"
    assert server.headers[0]["Content-Type"] == "application/json; charset=utf-8"
    assert server.paths == [SLACK + "?channel=ops"] * 2
    assert caplog.messages[0].startswith(
        f"alert_sent hook=http://127.0.0.1:{server.port}/… alert=table_halted attempts=1 "
    )
    assert "verysecrettoken" not in caplog.text


def test_name_and_password_of_an_address_are_sent_as_such(server: HookServer) -> None:
    """They are taken out of the address, and percent-decoded."""
    _deliver(server.address(userinfo="ops:o%40k@"))
    assert (server.headers[0]["Authorization"], server.headers[0]["Host"]) == (
        "Basic b3BzOm9Aaw==",
        f"127.0.0.1:{server.port}",
    )


@pytest.mark.parametrize(
    ("answers", "attempts", "event"),
    [
        ([500, 429, 200], 3, "alert_sent"),
        ([503, 503, 503, 200], 3, "alert_failed"),
        ([404], 1, "alert_failed"),
        ([302], 1, "alert_failed"),
    ],
)
def test_what_may_pass_is_tried_three_times(
    server: HookServer, answers: list[int], attempts: int, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With growing pauses; other refusals are final, and no redirect is followed."""
    server.answers += answers
    clock = _deliver(server.address())
    assert len(server.got) == len(server.paths) == attempts
    assert clock.pauses == [1.0, 5.0][: attempts - 1]
    (line,) = [message for message in caplog.messages if message.startswith("alert_")]
    assert line.startswith(f"{event} ")
    assert f" attempts={attempts} " in line
    if event == "alert_failed":
        assert f"the answer is {answers[0]} " in line
        assert line.endswith(': no such channel"')


def test_nobody_at_an_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A port that is closed is a failure after three attempts."""
    with hook_server() as server:
        address = server.address()
    _deliver(address)
    assert "alert_failed" in caplog.text
    assert "Connection refused" in caplog.text
    assert " attempts=3 " in caplog.text


def test_the_certificate_of_an_address_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is sent to a host that nobody vouches for; SSL_CERT_FILE names who does."""
    authority = Authority(tmp_path, "authority")
    with hook_server(authority.sign("hook", host="127.0.0.1")) as server:
        _deliver(server.address())
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        assert server.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        _deliver(server.address())
        assert server.got == [{**DOCUMENT, "error": "the password is ***\nand more"}]


def test_a_command_gets_the_document(tmp_path: Path) -> None:
    """As JSON on standard input, its main fields in the environment, and its words as a shell would split them, without a shell."""
    keep = f"json.dump([sys.argv[1:], json.load(sys.stdin), dict(os.environ)], open({str(tmp_path / 'got')!r}, 'w'))"
    _deliver(_script(tmp_path, keep) + " 'two words' $HOME")
    words, document, environment = json.loads((tmp_path / "got").read_text(encoding="utf-8"))
    assert words == ["two words", "$HOME"]
    assert document == {**DOCUMENT, "error": "the password is ***\nand more"}
    assert environment["STORAGE_CONSUMER_ALERT_EVENT"] == "table_halted"
    assert environment["STORAGE_CONSUMER_ALERT_TABLE"] == "d.a"
    assert environment["STORAGE_CONSUMER_ALERT_ERROR"] == "the password is ***\\u000aand more"
    assert environment["PATH"] == os.environ["PATH"]


def test_the_example_sends_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """conf/on-halt.sh mails text and next step, and is silent about a take-over."""
    mail = tmp_path / "mail"
    mail.write_text(f'#!/bin/sh\n{{ printf "%s\\n" "$@"; cat; }} >> {tmp_path}/sent\n', encoding="utf-8")
    mail.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = {"host": "db1", "text": "d.a halted: `rm -rf` $HOME", "next_step": "run: storage-consumer table"}
    script = Path(__file__).resolve().parents[3] / "conf" / "on-halt.sh"
    _deliver(f"{script} oncall@example.com", {**told, "event": "took_over"}, {**told, "event": "table_halted"})
    assert (tmp_path / "sent").read_text(encoding="utf-8") == (
        "-s\ntable_halted on db1\noncall@example.com\nd.a halted: `rm -rf` $HOME\n\nrun: storage-consumer table\n"
    )


def test_a_command_that_fails_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its code and what it wrote are logged, without secrets and without its arguments."""
    count = tmp_path / "count"
    _deliver(_script(tmp_path, f"open({str(count)!r}, 'a').write('x'); sys.exit('opensesame is wrong')"))
    assert count.read_text(encoding="utf-8") == "xxx"
    (line,) = [message for message in caplog.messages if message.startswith("alert_failed")]
    assert line == (
        f'alert_failed hook="{sys.executable} …" alert=table_halted attempts=3 error="it ended with 1: *** is wrong"'
    )


def test_a_command_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what it has started, which would otherwise go on for ever."""
    monkeypatch.setattr(calling, "COMMAND_TIMEOUT", 1.0)
    started = tmp_path / "started"
    child = f"{sys.executable} -c 'import time; time.sleep(600)'"
    _deliver(
        _script(
            tmp_path,
            f"import subprocess\nchild = subprocess.Popen({child!r}, shell=True)\n"
            f"open({str(started)!r}, 'a').write(f'{{child.pid}}\\n'); time.sleep(600)",
        )
    )
    assert "it was killed after 1 s" in caplog.text
    pids = [int(line) for line in started.read_text(encoding="utf-8").split()]
    assert len(pids) == 3
    # A signal does its work a moment later.
    wait_until("the end of all that was started", lambda: not any(map(_lives, pids)))


def test_a_command_that_writes_without_end_fills_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed as one that hangs; what it wrote was read and forgotten."""
    monkeypatch.setattr(calling, "COMMAND_TIMEOUT", 1.0)
    kept = tmp_path / "kept"
    _deliver(
        _script(
            tmp_path,
            f"import stat\nkept = open({str(kept)!r}, 'a')\n"
            "print(stat.S_ISREG(os.fstat(2).st_mode), file=kept, flush=True)\n"
            "while True: os.write(2, b'x' * 100000)",
        )
    )
    assert "it was killed after 1 s" in caplog.text
    assert kept.read_text(encoding="utf-8").split() == ["False"] * 3


def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """Its end counts, though another process still holds what it writes to."""
    began = time.monotonic()
    _deliver(_script(tmp_path, "import subprocess\nsubprocess.Popen(['sleep', '20'])"))
    assert time.monotonic() - began < 15


def test_an_error_of_any_length_reaches_a_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whole on standard input; cut in the environment, where the system takes no more than 128 KiB."""
    error = "é" * 200_000
    keep = f"json.dump([json.load(sys.stdin)['error'], os.environ['STORAGE_CONSUMER_ALERT_ERROR']], open({str(tmp_path / 'got')!r}, 'w'))"
    _deliver(_script(tmp_path, keep), {"event": "failed", "error": error, "next_step": error, "text": error})
    assert "alert_failed" not in caplog.text
    assert json.loads((tmp_path / "got").read_text(encoding="utf-8")) == [error, error[:LONGEST_VARIABLE]]


def test_no_half_of_a_secret_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where an error, an answer or an output is cut, the secret at its edge is blanked before."""
    _deliver(_script(tmp_path, "sys.exit('x' * 195 + 'opensesame')"))
    assert "xxx" in caplog.text
    assert "opens" not in caplog.text
    assert "opens" not in cut("x" * 994 + "opensesame" * 2)


def test_a_full_queue_drops_and_says_so(server: HookServer, caplog: pytest.LogCaptureFixture) -> None:
    """`send` returns at once, whatever the hook does; what does not fit is counted."""
    server.silent = threading.Event()
    clock = Hasty()
    delivery = Delivery(Hook(text=server.address()), clock)
    began = time.monotonic()
    for _ in range(MOST_WAITING + 3):
        delivery.send(DOCUMENT)
    assert time.monotonic() - began < 1
    assert delivery.failed == 3
    assert caplog.messages[-1].endswith('error="100 others wait already; so far 3 were not delivered"')
    began = time.monotonic()
    delivery.close(time.monotonic() + 0.2)
    assert time.monotonic() - began < 2
    assert caplog.messages[-1].endswith('error="the program ends; 100 were not delivered"')
    server.silent.set()
    delivery._thread.join(30)


def test_an_unexpected_error_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the next document is delivered."""
    got: list[str] = []

    def attempt(_: Hook, content: bytes, variables: Mapping[str, str]) -> None:
        got.append(variables["STORAGE_CONSUMER_ALERT_EVENT"])
        if len(got) < 4:
            raise ZeroDivisionError
        if len(got) == 4:
            raise CallFailed("no", may_pass=False)

    delivery = Delivery(Hook(text="x"), Hasty(), attempt)
    for event in ("a", "b", "c"):
        delivery.send({"event": event})
    delivery.close(time.monotonic() + 30)
    assert got == ["a", "a", "a", "b", "c"]
    assert [message.split()[0] for message in caplog.messages] == ["alert_failed", "alert_failed", "alert_sent"]


def test_a_command_that_is_not_there_is_a_wrong_setting() -> None:
    """It is found before anything begins."""
    check_commands([Hook(text="sh -c 'true'"), Hook(text="https://example.com/")])
    with pytest.raises(ConfigError, match="--on-halt: /no/such is not there"):
        check_commands([Hook(text="/no/such thing")])
