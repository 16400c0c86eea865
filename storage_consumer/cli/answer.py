"""What a command answers: the text that is printed, and the code with which the program ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from storage_consumer.cli.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command that ended without an error."""

    text: str
    code: ExitCode = ExitCode.DONE


Command = Callable[[Mapping[str, object], Mapping[str, str]], Answer]
"""What answers a command: takes options by keyword, as texts, and the environment; raises a `StorageConsumerError`."""
