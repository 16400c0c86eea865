"""Commands in messages, to be pasted, with the given settings and without secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from storage_consumer.config.options import BY_KEYWORD, OPTIONS
from storage_consumer.config.parsers import MAPPING, Document
from storage_consumer.config.settings import Config, Downstream, Upstream
from storage_consumer.config.uris import mask_uri

PROGRAM = "storage-consumer"
_CONFIG = "--config"
_URIS = ("upstream_uri", "dump", "source")
_HIDDEN = re.compile(r":\*\*\*(?=@)|(?<=//)\*\*\*@|[?&;#](?:[^?&;#=]*=)?\*\*\*")
_PASSWORD_FILE = BY_KEYWORD["downstream_password_file"].name
_REACHING = [
    each for each in OPTIONS if each.group == "the target" and each.keyword in Downstream.__slots__
]
_ELSEWHERE = {"downstream-uri", _PASSWORD_FILE, *(each.name for each in _REACHING)}


def bare_uri(uri: str) -> str:
    """Return a URI without its password, and without the parameters that may be secrets."""
    bare = _HIDDEN.sub("", mask_uri(uri))
    return bare if "?" in bare else bare.replace("&", "?", 1)


def uri_of(upstream: Upstream) -> str:
    """Return the bucket's URI with what is needed to reach it, without credentials."""
    names = ("endpoint", "region", "role_arn", "external_id")
    given = [
        f"{name.replace('_', '-')}={value}" for name in names if (value := getattr(upstream, name))
    ]
    # Only what differs from the default, so that the URI stays short.
    given += [] if upstream.force_path_style else ["force-path-style=false"]
    return upstream.identity + (f"?{'&'.join(given)}" if given else "")


def reaching(downstream: Downstream) -> list[str]:
    """Return the flags that lead to this target and state; the ones that were given, if known."""
    where = f"{downstream.host}:{downstream.port}/"
    if downstream.unix_socket:
        where = f"localhost/?unix-socket={downstream.unix_socket}"
    uri = (
        downstream.given_uri
        or f"mysql{'+ssl' if downstream.ssl else ''}://{downstream.user}@{where}"
    )
    words = ["--downstream-uri", bare_uri(uri)]
    words += [f"--{_PASSWORD_FILE}", downstream.password_file] if downstream.password_file else []
    for option in _REACHING:
        if (value := getattr(downstream, option.keyword)) != option.default:
            text = f"{value}s" if option.metavar == "DURATION" else str(value)
            words += [f"--{option.name}"] if value is True else [f"--{option.name}", text]
    return words + [word for path in downstream.password_in for word in (_CONFIG, path)]


def command(text: str, downstream: Downstream) -> str:
    """Return a command that reaches this target; `text`: its words before those flags, quoted."""
    return f"{PROGRAM} {text} {shlex.join(reaching(downstream))}"


def run_command(config: Config, *more: str) -> str:
    """Return `run` with the settings that were given. `more`: further flags."""
    files = {
        str(Path(path).expanduser().absolute())
        for flag, path in pairwise(config.given)
        if flag == _CONFIG
    }
    # A file twice would outrank those after it.
    known = replace(
        config.downstream, password_in=tuple(set(config.downstream.password_in) - files)
    )
    return shlex.join([PROGRAM, "run", *config.given, *more, *reaching(known)])


def given_again(options: Mapping[str, object]) -> Iterator[str]:
    """Yield flags for these keyword options, without those to the target; see `reaching`."""
    for option in OPTIONS:
        value = (
            options.get(option.keyword) if option.flag and option.name not in _ELSEWHERE else None
        )
        flag = f"--{option.name}"
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, Document):
                # A mapping that a program gave is no file.
                each = (  # noqa: PLW2901
                    None if each.source == MAPPING and not Path(MAPPING).is_file() else each.source
                )
            if not isinstance(each, str | Path | int | float):
                continue
            text = str(each)
            if option.switch and text.lower() == "true":
                yield flag
                continue
            if option.keyword in _URIS:
                text = bare_uri(text)
            elif option.keyword == "on_halt" and " " in text:
                # The name of a program is shown; anything more may hold a secret.
                text = "***"
            yield from (flag, text)
