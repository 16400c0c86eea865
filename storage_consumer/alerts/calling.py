"""One attempt to hand a document to a hook: a command that is started, or an address that gets a POST."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from http import HTTPStatus
from http.client import HTTPException
from selectors import EVENT_READ, DefaultSelector
from signal import SIGKILL
from time import monotonic, sleep
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from storage_consumer.config.hooks import Hook
from storage_consumer.errors import ConfigError
from storage_consumer.redaction import redact

POST_TIMEOUT = 10.0
"""Seconds that an address may stay silent."""
COMMAND_TIMEOUT = 30.0
"""Seconds that a command may take; then it is killed, with all that it started in its session."""
_EXCERPT = 200
"""Characters of an answer, or of what a command wrote to standard error, that a message shows."""
_READ = 64 * 1024
"""Bytes that are read of either at a time, at most."""
_LOOK_EVERY = 0.05
"""Seconds between two looks whether a command has ended."""
_MAY_PASS = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class CallFailed(Exception):
    """An attempt that failed; its text says why."""

    def __init__(self, why: str, *, may_pass: bool = True) -> None:
        """`may_pass`: whether another attempt may succeed."""
        super().__init__(why)
        self.may_pass = may_pass


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: a POST would become a GET, and go to a host that nobody named."""

    def redirect_request(
        self,
        req: Request,  # noqa: ARG002 - the interface
        fp: IO[bytes],  # noqa: ARG002 - likewise
        code: int,  # noqa: ARG002 - likewise
        msg: str,  # noqa: ARG002 - likewise
        headers: Any,  # noqa: ARG002 - likewise
        newurl: str,  # noqa: ARG002 - likewise
    ) -> None:
        """Leave the answer as the error that it is."""
        return


def check_commands(hooks: Iterable[Hook]) -> None:
    """Raise `ConfigError` for a command whose program is not there."""
    for hook in hooks:
        if not hook.is_address and shutil.which(hook.command[0]) is None:
            raise ConfigError(
                f"--on-halt: {hook.command[0]} is not there, or may not be executed. The command is started without a shell: for pipes "
                "and variables give a script, or sh -c '…'"
            )


def call(hook: Hook, content: bytes, variables: Mapping[str, str]) -> None:
    """Hand a document over; raise `CallFailed`. `variables`: what a command finds in its environment."""
    if hook.is_address:
        _post(hook.text, content)
    else:
        _run(hook.command, content, variables)


def _post(address: str, content: bytes) -> None:
    split = urlsplit(address)
    userinfo, _, host = split.netloc.rpartition("@")
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "storage-consumer"}
    if userinfo:
        headers["Authorization"] = f"Basic {b64encode(unquote(userinfo).encode()).decode()}"
    plain = split._replace(netloc=host, fragment="").geturl()
    request = Request(plain, data=content, headers=headers)  # noqa: S310 - http or https, as `hooks` has checked
    try:
        # Certificates are verified, and proxies of the environment are used: that is urllib's own way.
        with build_opener(_NoRedirect).open(request, timeout=POST_TIMEOUT):
            return
    except HTTPError as answer:
        with answer:
            said = _excerpt(_part(answer))
        may_pass = answer.code >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.code in _MAY_PASS
        raise CallFailed(f"the answer is {answer.code} {answer.reason}{said}", may_pass=may_pass) from None
    except URLError as fault:
        raise CallFailed(f"no answer: {fault.reason}") from None
    except (OSError, HTTPException) as fault:
        raise CallFailed(f"no answer: {type(fault).__name__}: {fault}") from None


def _part(answer: HTTPError) -> bytes:
    """Return the beginning of an answer's content, as far as it can be read."""
    with suppress(OSError, HTTPException):
        return answer.read(_READ)
    return b""


def _run(command: tuple[str, ...], content: bytes, variables: Mapping[str, str]) -> None:
    # A file, not a pipe: a command need not read what it gets.
    with tempfile.TemporaryFile() as document:
        document.write(content)
        document.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, without a shell
                command,
                stdin=document,
                stdout=subprocess.DEVNULL,
                # Not a file: a command that never stops writing would fill the disk on which Spark works.
                stderr=subprocess.PIPE,
                env={**os.environ, **variables},
                # A signal to the program, such as Ctrl-C at its terminal, does not end the message about it.
                start_new_session=True,
            )
        except OSError as fault:
            raise CallFailed(f"it cannot be started: {fault.strerror or fault}") from None
    with process.stderr or nullcontext():
        said = _waited(process)
    if process.returncode:
        raise CallFailed(f"it ended with {process.returncode}{_excerpt(said)}")


def _waited(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for the end of a command and return the beginning of what it wrote; raise `CallFailed` if it takes too long."""
    said, deadline = b"", monotonic() + COMMAND_TIMEOUT
    with DefaultSelector() as selector:
        errors = process.stderr.fileno() if process.stderr else -1
        os.set_blocking(errors, False)
        selector.register(errors, EVENT_READ)
        # The end of the command counts, not that of the pipe: what it leaves running may hold that open.
        while process.poll() is None:
            if monotonic() > deadline:
                _kill(process)
                raise CallFailed(f"it was killed after {COMMAND_TIMEOUT:g} s")
            if not selector.get_map():
                sleep(_LOOK_EVERY)
                continue
            part = os.read(errors, _READ) if selector.select(_LOOK_EVERY) else None
            said = (said + (part or b""))[:_READ]
            if part == b"":
                selector.unregister(errors)
        # What it wrote last.
        with suppress(BlockingIOError):
            said += os.read(errors, _READ)
    return said


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, SIGKILL)
    process.wait()


def _excerpt(content: bytes) -> str:
    text = " ".join(redact(content.decode("utf-8", "replace")).split())[:_EXCERPT]
    return f": {text}" if text else ""
