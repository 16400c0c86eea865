"""What a command answers: the text that is printed, and the code with which the program ends."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from storage_consumer.cli.exit_codes import ExitCode
from storage_consumer.cli.verbs import VERBS
from storage_consumer.session import Session
from storage_consumer.telemetry import json_text


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command that ended without an error."""

    text: str
    code: ExitCode = ExitCode.DONE


OBEYED = "a running consumer obeys in its next round, a stopped one when it starts"
"""What becomes of a decision."""


def told(own: Any, document: object, lines: Iterable[str], code: ExitCode = ExitCode.DONE) -> Answer:
    """Return an answer in the form that the command's record `own` asks for: the document as JSON, or lines."""
    return Answer(json_text(document) if own.json else "\n".join([*lines, ""]), code)


Command = Callable[[Any, Session], Answer]
"""What answers a command: takes the record of its own options, and what the others lead to; raises a `StorageConsumerError`."""


_OF_LOG = ("log_level", "log_file", "log_format")
"""Options that the program heeds, and that are nothing to a command."""


def answered(verb: str, options: Mapping[str, object], environ: Mapping[str, str], **session: Any) -> Answer:
    """Return what a command answers to options by keyword; raise as its function `answer` does. `session`: more for the `Session`."""
    own, rest = VERBS[verb].divided({name: value for name, value in options.items() if name not in _OF_LOG})
    # Only the one that is asked for: help and `run` need not wait for what the others import.
    command: Command = importlib.import_module(f"storage_consumer.cli.{VERBS[verb].module}").answer
    return command(own, Session(rest, environ, **session))
