"""What must not be shown: registered secrets are blanked, and characters that a terminal would interpret are escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

HIDDEN = "***"
_SHORT_SECRET = 4
# The scheme is not looked at: a search for its beginning takes time that grows with the square of a long word.
_USERINFO = re.compile(r"(://[^\s:/?#@\"']*):[^\s/@\"']+@")
_SIGNED = re.compile(
    r"([?&;][\w%.-]{0,40}?(?:signature|token|credential|accesskeyid|accessid|\bsig)=)[^\s&;\"'<>]+", re.IGNORECASE
)
"""A secret among the parameters of a URL that somebody else signed."""

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal interprets instead of showing: control characters, line ends, and characters that change the writing direction."""

_secrets: dict[str, re.Pattern[str]] = {}


def register_secret(secret: str) -> None:
    """Blank `secret` wherever it would appear, also percent-encoded; a secret under 4 characters only as a whole word."""
    # A secret may appear as given, percent-encoded in a URI, or escaped in the repr of a foreign error.
    for spelling in {secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]} - {""} - _secrets.keys():
        found = re.escape(spelling)
        # Blanking a secret like "a" inside of words would make every line unreadable.
        if len(spelling) < _SHORT_SECRET:
            found = rf"(?<!\w){found}(?!\w)"
        _secrets[spelling] = re.compile(found)


def forget_secrets() -> None:
    """Stop blanking all registered secrets."""
    _secrets.clear()


def redact(text: str) -> str:
    """Return the text without registered secrets, and without passwords and signatures in URIs."""
    for spelling in sorted(_secrets, key=len, reverse=True):  # longest first: a short one may be part of a long one
        text = _secrets[spelling].sub(HIDDEN, text)
    # Secrets that nobody registered may be in a URI that a foreign library quotes.
    return _SIGNED.sub(rf"\1{HIDDEN}", _USERINFO.sub(rf"\1:{HIDDEN}@", text))


def escaped(text: str) -> str:
    r"""Return the text with each character of `UNSEEN` written as ``\u`` and its number; valid in JSON as well."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lines_escaped(text: str) -> str:
    """Return the text as `escaped` does, but keep its line ends."""
    return "\n".join(map(escaped, text.split("\n")))


def json_text(document: object) -> str:
    """Return a document for another program, with secrets blanked in its texts; numbers and member names are unchanged."""
    return lines_escaped(json.dumps(_redacted(document), ensure_ascii=False, indent=2)) + "\n"


def _redacted(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, (list, tuple)) else value
