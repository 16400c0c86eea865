"""Whom --on-halt calls: a command, or an address that takes a POST. Its parts may be secrets, so messages show little of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

_SCHEMES = ("http", "https")
_SECRET_PATH = 16
"""Characters from which the path of an address may be a secret, as it is for chat services; a shorter one could be any word."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Hook:
    """One command or address."""

    text: str
    """As it was given."""

    @property
    def is_address(self) -> bool:
        """Whether it is an address to POST to; otherwise it is a command."""
        return is_address(self.text)

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(shlex.split(self.text))

    @property
    def shown(self) -> str:
        """The hook for messages: scheme and host of an address, the program of a command."""
        if not self.is_address:
            program, *rest = self.command
            return f"{program} …" if rest else program
        split = urlsplit(self.text)
        host = split.netloc.rpartition("@")[2]
        return f"{split.scheme}://{host}/…" if split.path.strip("/") or split.query else f"{split.scheme}://{host}/"

    @property
    def hidden(self) -> tuple[str, ...]:
        """The texts that must not be shown: the address, its password or token, and a path or query that is long enough to be a secret."""
        if not self.is_address:
            return ()
        split = urlsplit(self.text)
        behind = self.text.partition(split.netloc)[2]
        return (self.text, *_userinfo(split), *([behind] if len(behind) >= _SECRET_PATH else []))

    def __repr__(self) -> str:
        """Return what messages show."""
        return f"Hook({self.shown})"


def _userinfo(split: SplitResult) -> tuple[str, ...]:
    """Return the password; a name without one may be a token."""
    secret = split.password or split.username
    return (secret, unquote(secret)) if secret else ()


def is_address(text: str) -> bool:
    """Return whether the text is meant as an address rather than a command."""
    return "://" in text.partition(" ")[0]


def hooks(value: object) -> tuple[Hook, ...]:
    """Return hooks from a text with one a line, or a list of texts; ValueError, which quotes nothing of them, for an unreadable one."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ValueError("a command or an http(s) address is expected, as a text")
    lines = [line.strip() for item in items for line in str(item).splitlines()]
    return tuple(_checked(Hook(text=line)) for line in lines if line)


def _checked(hook: Hook) -> Hook:
    if not hook.is_address:
        try:
            words = hook.command
        except ValueError as error:
            raise ValueError(f"the command cannot be split into words as a shell would: {error}") from None
        if not words or not words[0]:
            raise ValueError("a command or an http(s) address is expected")
        return hook
    try:
        split = urlsplit(hook.text)
        fits = split.scheme.lower() in _SCHEMES and bool(split.hostname) and (split.port is None or split.port > 0)
    except ValueError:
        fits = False
    if not fits or any(char.isspace() for char in hook.text):
        raise ValueError("an address begins with http:// or https:// and a host; anything else is a command")
    return hook
