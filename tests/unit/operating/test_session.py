"""What one command opens is opened once, whoever asks for it."""

from __future__ import annotations

import os

from storage_consumer.session import Session


def test_a_password_file_is_read_once() -> None:
    """It may be a pipe, also where the environment names it; `rebind` asks for both ends, and for the state in the target."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        pipe.write("opensesame")
    options: dict[str, object] = {"upstream_uri": "file:///b?protocol=csv", "downstream_uri": "mysql://app@db:3306/"}
    session = Session(options, {"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD_FILE": f"/dev/fd/{reading}"})
    try:
        assert session.ends.secrets.password == "opensesame"  # noqa: S105 - it is the test's
        assert session.target.password == "opensesame"  # noqa: S105 - likewise
        assert session.target.settings == session.ends.config.downstream
    finally:
        os.close(reading)
