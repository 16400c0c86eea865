"""The commands `completion` and `tso`, which need neither bucket nor target."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import PurePath
from zoneinfo import ZoneInfo

import shtab

from storage_consumer.cli.arguments import whole_parser
from storage_consumer.cli.endings import Answer, told
from storage_consumer.cli.verbs import PROGRAM, VERBS, CompletionFlags, TsoFlags
from storage_consumer.errors import ConfigError
from storage_consumer.model import TSO_PHYSICAL_SHIFT, physical_ms, tso_of
from storage_consumer.session import Session
from storage_consumer.telemetry import tso_time
from storage_consumer.tso import parse_instant


def answer_completion(own: CompletionFlags, session: Session) -> Answer:
    """Return the script for the shell that ``action`` names, else for the user's.

    Raises `ConfigError` if there is none for that.
    """
    shell = own.action or PurePath(session.environ.get("SHELL", "")).name
    known = [name for name, _ in VERBS["completion"].actions]
    if shell not in known:
        why = f"$SHELL is {shell}, for which there is no script" if shell else "$SHELL is not set"
        raise ConfigError(
            f"{why}: name the shell, as in `{PROGRAM} completion bash` ({', '.join(known)})"
        )
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
    verbs.add_parser("help", help="show the help of a command").add_argument(
        "command", choices=list(VERBS)
    )
    return shtab.complete(parser, shell).rstrip("\n")


_NOW = "now"


def answer_tso(own: TsoFlags, _session: Session) -> Answer:
    """Return the instants of words; raise `ConfigError` for one that is neither TSO nor time."""
    zone: tzinfo | None = None
    if own.tz == "System":
        raise ConfigError("--tz: name the zone, such as Asia/Shanghai or +08:00")
    if own.tz and own.tz[0] in "+-":
        hours, minutes = (int(part) for part in own.tz[1:].split(":"))
        zone = timezone((-1 if own.tz[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))
    elif own.tz:
        zone = ZoneInfo(own.tz)
    # Several words `now` are one instant.
    now, found, lines = time.time(), [], []
    for word in own.words or [_NOW]:
        try:
            tso = tso_of(now) if word.strip().lower() == _NOW else parse_instant(word)
        except ValueError as error:
            raise ConfigError(f"tso: {error}") from None
        ms, utc, logical = physical_ms(tso), tso_time(tso), tso & ((1 << TSO_PHYSICAL_SHIFT) - 1)
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        local = moment.astimezone(zone).isoformat(timespec="milliseconds") if zone else None
        found.append(
            {
                "given": word,
                "tso": tso,
                "utc": utc,
                "local": local,
                "physical_ms": ms,
                "logical": logical,
            }
        )
        lines.append(f"{tso}  {utc}{f'  {local}' if local else ''}  logical {logical}")
    return told(own, {"instants": found}, lines)
