"""Secrets that a test plants, each another one, and where any of them turns up again."""

from __future__ import annotations

import base64
import re
import secrets
from urllib.parse import quote, quote_plus

_SHORTEST = 6
_AWKWARD = "/+% ä'\"&=@:#?"


class Planted:
    """Makes secrets and finds what is left of them."""

    def __init__(self) -> None:
        """None so far."""
        self._pieces: dict[str, str] = {}

    def secret(self, where: str, joint: str = _AWKWARD) -> str:
        """A new secret, for messages called `where`: random letters on both sides of characters that get encoded."""
        return self.known(where, f"{secrets.token_hex(6)}{joint}{secrets.token_hex(6)}")

    def key(self, where: str) -> str:
        """A new secret as Azure gives them out: base64 of some bytes."""
        return self.known(where, base64.b64encode(secrets.token_bytes(30)).decode())

    def known(self, where: str, secret: str) -> str:
        """Take a secret that somebody else made; the secret."""
        for piece in re.findall(rf"[A-Za-z0-9]{{{_SHORTEST},}}", secret):
            self._pieces[piece] = where
        return secret

    def spelled(self, where: str, secret: str) -> None:
        """Take a secret of common words: it is found as a whole only, as it is and as it stands in a URI."""
        self._pieces |= dict.fromkeys((secret, encoded(secret), quote_plus(secret)), where)

    def found(self, text: str) -> set[str]:
        """Which secrets the text holds, in whatever encoding that leaves letters and digits as they are, or a piece of which."""
        return {where for piece, where in self._pieces.items() if piece in text}


def encoded(secret: str) -> str:
    """As it stands in a URI."""
    return quote(secret, safe="")
