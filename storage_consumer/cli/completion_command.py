"""The command `completion`: a script for a shell, which holds all words, so that no key press starts Python."""

from __future__ import annotations

import argparse
from pathlib import PurePath

import shtab

from storage_consumer.cli.answer import Answer, told
from storage_consumer.cli.arguments import whole_parser
from storage_consumer.cli.verbs import PROGRAM, VERBS, CompletionFlags
from storage_consumer.errors import ConfigError
from storage_consumer.session import Session


def answer(own: CompletionFlags, session: Session) -> Answer:
    """Return the script for the shell that ``action`` names, else for the user's.

    Raises `ConfigError` if there is none for that.
    """
    shell = own.action or PurePath(session.environ.get("SHELL", "")).name
    known = [name for name, _ in VERBS["completion"].actions]
    if shell not in known:
        why = f"$SHELL is {shell}, for which there is no script" if shell else "$SHELL is not set"
        raise ConfigError(f"{why}: name the shell, as in `{PROGRAM} completion bash` ({', '.join(known)})")
    text = script(shell)
    return told(own, {"script": f"{text}\n"}, [text])


def script(shell: str) -> str:
    """Return the completion script for ``bash``, ``zsh`` or ``fish``."""
    parser = whole_parser()
    # argparse shows its parts to nobody; shtab reads the same ones.
    (verbs,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001 - there is no other way
    for command in verbs.choices.values():
        for action in command._actions:  # noqa: SLF001 - there is no other way
            # Which values a flag takes, as its metavar says: files, or words in small letters.
            shown = str(action.metavar).strip("{}")
            if shown == "FILE" or action.dest == "output":
                action.complete = shtab.FILE  # where shtab looks for it
            elif ("|" in shown or "," in shown) and shown.islower():
                action.choices = shown.replace(",", "|").split("|")
    verbs.add_parser("help", help="show the help of a command").add_argument("command", choices=list(VERBS))
    return shtab.complete(parser, shell).rstrip("\n")
