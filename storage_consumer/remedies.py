"""The ways on that a message names, as commands that can be pasted."""

from __future__ import annotations

import shlex

from storage_consumer.config.settings import Downstream
from storage_consumer.config.uris import mask_uri
from storage_consumer.planning.steps import DdlStep

PROGRAM = "storage-consumer"


def ways_on(step: DdlStep, downstream: Downstream) -> str:
    """The ways on where a statement stopped its table; the password of a URI is hidden."""
    done, skip, replace = (ddl_command(verb, step, downstream) for verb in ("done", "skip", "replace"))
    return (
        f"If it took effect by hand: {done} -- to go on without it: {skip} -- to run another text in its place: {replace} "
        "--sql '...'"
    )


def ddl_command(verb: str, step: DdlStep, downstream: Downstream) -> str:
    """``storage-consumer ddl VERB …`` for a statement."""
    words = [PROGRAM, "ddl", verb, "--table", str(step.name), "--version", str(step.version)]
    return shlex.join([*words, *reaching(downstream)])


def reaching(downstream: Downstream) -> list[str]:
    """The flags that lead to this target and state; those that were given where they are known."""
    plain = Downstream()
    where = f"{downstream.host}:{downstream.port}/"
    if downstream.unix_socket:
        where = f"localhost/?unix-socket={downstream.unix_socket}"
    uri = downstream.given_uri or f"mysql{'+ssl' if downstream.ssl else ''}://{downstream.user}@{where}"
    words = ["--downstream-uri", mask_uri(uri)]
    for name, value, default in (
        ("downstream-password-file", downstream.password_file, plain.password_file),
        ("state-schema", downstream.state_schema, plain.state_schema),
        ("ssl-ca", downstream.ssl_ca, plain.ssl_ca),
        ("ssl-cert", downstream.ssl_cert, plain.ssl_cert),
        ("ssl-key", downstream.ssl_key, plain.ssl_key),
        ("ssl-mode", downstream.ssl_mode, plain.ssl_mode),
    ):
        if value != default:
            words += [f"--{name}", value]
    return words
