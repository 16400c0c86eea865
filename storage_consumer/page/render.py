"""From records to HTML. Whatever a template shows passes `_shown` and is then escaped; secrets are blanked before texts are cut."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from storage_consumer.clock import span
from storage_consumer.page.plots import short
from storage_consumer.page.query import RANGES, RELOAD, SORTS, table_path
from storage_consumer.telemetry import lines_escaped, redact, tso_time, utc_time

_FOLDER = "templates"
_CUT = 300
"""Characters of a reason or a statement in a list."""


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return _environment().get_template(template).render(values)


@cache
def policy() -> str:
    """Return the Content-Security-Policy of all pages: their own style and script, data from where they came from, nothing else."""
    return (
        f"default-src 'none'; style-src '{_digest('style.css')}'; script-src '{_digest('script.js')}'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def _text(name: str) -> str:
    """Return a file that every page holds."""
    return resources.files("storage_consumer.page").joinpath(_FOLDER, name).read_text(encoding="utf-8").strip()


def _digest(name: str) -> str:
    digest = hashlib.sha256(_text(name).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _environment() -> Environment:
    """Return the templates, compiled at first use."""
    found = Environment(
        loader=PackageLoader("storage_consumer.page", _FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(
        span=span,
        tso_time=tso_time,
        utc_time=utc_time,
        table_path=table_path,
        sorts=SORTS,
        ranges=RANGES,
        reload_seconds=RELOAD,
        style=Markup(_text("style.css")),  # noqa: S704 - files of the package, whose digest the policy names
        script=Markup(_text("script.js")),  # noqa: S704 - likewise
    )
    found.filters.update(
        cut=_cut, one_line=lambda text: " ".join(text.split()), number=lambda number: f"{number:,}", short=short
    )
    return found


def _shown(value: object) -> object:
    """Return a value without secrets, and without characters that change the order of others or show nothing."""
    return lines_escaped(redact(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


def _cut(text: str, most: int = _CUT) -> str:
    """Return the beginning of a text."""
    # Before it is cut: half a secret would no longer be known as one.
    text = redact(text)
    return text if len(text) <= most else f"{text[:most]}…"
