"""Texts to values: functions that parse flags, variables, TOML, keywords, or raise ValueError.

The message of the ValueError says what was expected; the caller adds where the value was given.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import unicodedata
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage_consumer.tso import parse_instant, tso_of_instant

Parser = Callable[[object], object]

_TRUE = frozenset({"1", "t", "true", "yes", "on"})
_FALSE = frozenset({"0", "f", "false", "no", "off"})
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d{2})")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_$]{1,64}")
_SPARK_MASTER = re.compile(
    r"(local|local\[[^\]]+\]|local-cluster\[[^\]]+\]|yarn|spark://.+|k8s://.+)"
)
_LISTEN = re.compile(r"(?:(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])?:)?(?P<port>\d{1,5})")
_MAX_PORT = 65535
_ESCAPE = re.compile(r"\\(t|r|n|x[0-9A-Fa-f]{2})")
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n"}
_LONGEST_ABBREVIATION = 5
_NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
_MAX_OFFSET_MINUTES = 14 * 60


MAPPING = "config"
"""`Document.source` of a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One file of settings that was read, or a mapping in its place."""

    source: str
    """The file's name, for messages."""
    content: Mapping[str, object]
    """The settings by the keys of the TOML file."""
    printed: bool = False
    """Whether TiCDC printed it as JSON, with every setting, even those that nobody chose."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean `x`?"`` for the nearest known name, or an empty text."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def text(value: object) -> str:
    """Return a text without control characters."""
    if not isinstance(value, str):
        raise ValueError(f"a text is expected, not {value!r}")  # noqa: TRY004 - one exception for every value that does not fit
    if any(ord(char) < ord(" ") for char in value):
        raise ValueError("a text without control characters is expected")
    return value


def raw_text(value: object) -> str:
    """Return any text, control characters and an empty one included."""
    if not isinstance(value, str):
        raise ValueError(f"a text is expected, not {value!r}")  # noqa: TRY004 - one exception for every value that does not fit
    return value


def command(value: object) -> tuple[str, ...]:
    """Split a command into words as a shell would; no message quotes them: maybe secrets."""
    if value == ():
        return ()
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(
                "one command takes the documents, and several were given: give one that calls the others"
            )
        value = value[0]
    try:
        words = tuple(shlex.split(value)) if isinstance(value, str) else ()
    except ValueError as error:
        raise ValueError(
            f"the command cannot be split into words as a shell would: {error}"
        ) from None
    if not words or not words[0]:
        raise ValueError("a command is expected, as a text")
    if "://" in words[0]:
        raise ValueError(
            "a command is expected, not an address: curl -fsS -m 20 -d @- ADDRESS sends the document to one"
        )
    return words


def filled(value: object) -> str:
    """Return a text that is not empty."""
    if not raw_text(value):
        raise ValueError("a value is expected")
    return str(value)


def filled_texts(value: object) -> tuple[str, ...]:
    """Return one or several texts that are not empty."""
    return tuple(map(filled, value if isinstance(value, (list, tuple)) else [value]))


def unescaped(value: object) -> object:
    r"""Replace ``\t``, ``\r``, ``\n`` and ``\xNN`` in a text; other backslashes stay."""
    if not isinstance(value, str):
        return value
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1]) or chr(int(match[1][1:], 16)), value)


def path(value: object) -> str:
    """Return a path as text; ``~`` is the home directory."""
    given = text(str(value) if isinstance(value, Path) else value)
    try:
        return str(Path(given).expanduser()) if given else ""
    except RuntimeError as error:
        raise ValueError(
            f"{given!r} names the home directory of a user who is not known here"
        ) from error


def named_path(value: object) -> str:
    """Return what `path` does for a path that is not empty: nobody who gives one means none."""
    if not (found := path(value)):
        raise ValueError("a path is expected, not an empty text")
    return found


def boolean(value: object) -> bool:
    """Return true or false, also from the words that Go and people write."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"true or false is expected, not {value!r}")


def integer(*, low: int, high: int) -> Parser:
    """Return a parser of whole numbers from `low` to `high`, both inclusive."""

    def parse(value: object) -> int:
        digits = str(value).strip()
        if (
            isinstance(value, bool)
            or not re.fullmatch(r"[+-]?[0-9]{1,20}", digits)
            or not low <= int(digits) <= high
        ):
            raise ValueError(f"a whole number from {low} to {high} is expected, not {value!r}")
        return int(digits)

    return parse


def seconds_of(value: object) -> float:
    """Return the seconds of a duration: ``2s``, ``1h30m``, ``100ms`` or a bare number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < 0 or not math.isfinite(value):
            raise ValueError(f"a duration must be finite and not negative: {value!r}")
        return float(value)
    given = value.strip() if isinstance(value, str) else ""
    if given == "0":
        return 0.0
    parts = _DURATION_PART.findall(given)
    # findall leaves out what it cannot read, so its parts have to make up the whole text.
    if not parts or "".join(number + unit for number, unit in parts) != given:
        raise ValueError(f"a duration like 2s, 1h30m or 100ms is expected, not {value!r}")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def duration(*, low: float = 0.0) -> Parser:
    """Return a parser of durations of at least `low` seconds; its results are seconds."""

    def parse(value: object) -> float:
        seconds = seconds_of(value)
        if seconds < low:
            raise ValueError(f"at least {low:g}s is expected, not {value!r}")
        return seconds

    return parse


def whole_seconds(value: object) -> int:
    """Return a duration rounded up to whole seconds, at least one."""
    return max(1, math.ceil(seconds_of(value)))


def choice(*words: str) -> Parser:
    """Return a parser that takes one of `words`, in upper or lower case, with ``-`` or ``_``."""

    def parse(value: object) -> str:
        given = value.strip().lower().replace("_", "-") if isinstance(value, str) else ""
        if given not in words:
            raise ValueError(
                f"one of {', '.join(words)} is expected, not {value!r}{did_you_mean(given, words)}"
            )
        return given

    return parse


def schema_name(value: object) -> str:
    """Return our own schema's name: letters, digits, ``_``, ``$``, and no server's schema."""
    given = text(value)
    if not _IDENTIFIER.fullmatch(given) or is_system(given):
        raise ValueError(
            f"a schema name of 1 to 64 letters, digits, _ or $ that is not the server's own is expected, not {given!r}"
        )
    return given


def listen_address(value: object) -> str:
    """Return where to listen as ``host:port``, this machine by default; empty: nowhere."""
    # TOML and keywords may give the port as a number.
    given = (
        str(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else text(value).strip()
    )
    if not given:
        return ""
    match = _LISTEN.fullmatch(given)
    if not match or int(match["port"]) > _MAX_PORT:
        raise ValueError(
            f"an address like 127.0.0.1:9464 or [::1]:9464, or a port on this machine alone like :9464, is expected, not {given!r}"
        )
    return f"{match['host'] or '127.0.0.1'}:{int(match['port'])}"


def spark_master(value: object) -> str:
    """Return a Spark master URL, or an empty text."""
    given = text(value)
    if given and not _SPARK_MASTER.fullmatch(given):
        raise ValueError(
            f"a Spark master like local[*], spark://host:7077, yarn or k8s://… is expected, not {given!r}"
        )
    return given


def instant(value: object) -> int:
    """Return a TSO, given as such or as a time with its zone; see `parse_instant`. 0 stays 0."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"a TSO or a time as text is expected, not {value!r}")  # noqa: TRY004 - one exception for every value that does not fit
    return parse_instant(str(value))


def recent_instant(value: object, *, is_end: bool = False) -> int:
    """Return a TSO as `parse_instant` does, or of so long ago by this clock, as ``-1h30m``."""
    given = str(value).strip()
    if not given.startswith("-"):
        return parse_instant(given, is_end=is_end)
    # No more than a date can be moved by; that is before 1970, and refused.
    ago = timedelta(seconds=min(seconds_of(given[1:]), 1e10))
    return tso_of_instant(datetime.now(UTC) - ago, is_end=is_end)


def config_paths(value: object) -> object:
    """Return the items of ``config``: paths or mappings, one or several; later ones override."""
    items = value if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if not isinstance(item, (str, Path, Mapping, Document)) or item == "":
            raise ValueError(
                f"a path of a TOML or JSON file or a mapping is expected, not {type(item).__name__} {item!r:.80}"
            )
    return list(items)


def time_zone(value: object) -> str:
    """Return a zone: ``Area/City``, ``UTC``, ``+08:00``, or ``System``, which callers resolve."""
    given = text(value).strip()
    if given.lower() == "system":
        return "System"
    if offset := _OFFSET.fullmatch(given):
        sign, hours, minutes = offset.groups()
        total = int(hours) * 60 + int(minutes)
        # MySQL's own limits for an offset.
        low = -_MAX_OFFSET_MINUTES + 1 if sign == "-" else 0
        if (
            int(minutes) >= 60  # noqa: PLR2004 - minutes in an hour
            or not low <= (-total if sign == "-" else total) <= _MAX_OFFSET_MINUTES
        ):
            raise ValueError(f"a time zone offset must be between -13:59 and +14:00, not {given!r}")
        return f"{sign}{int(hours):02d}:{minutes}"
    # The database has other files too: a copy of this host's zone, clocks that count leap seconds.
    if given not in _NO_ZONES and not given.startswith("right/"):
        # A folder of zones, such as Europe, raises an OSError.
        with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            zoneinfo.ZoneInfo(given)
            return given
    expected = f"a time zone like UTC, Asia/Shanghai, +08:00 or System is expected, not {given!r}"
    if given.isalpha() and len(given) <= _LONGEST_ABBREVIATION:
        # The nearest name would be that of another zone.
        raise ValueError(f"{expected}: an abbreviation does not identify a zone")
    raise ValueError(f"{expected}{did_you_mean(given, zoneinfo.available_timezones())}")


def system_zone(environ: Mapping[str, str], etc: Path = Path("/etc")) -> str:
    """Return the host's zone from ``TZ``, ``/etc/timezone``, ``/etc/localtime``, or ValueError."""
    # POSIX allows a colon before the name.
    candidates = [environ.get("TZ", "").lstrip(":")]
    named = etc / "timezone"
    if named.is_file():
        candidates.append(named.read_text(encoding="utf-8", errors="replace").strip())
    local = etc / "localtime"
    if local.exists():
        candidates.append(str(local.resolve()).rpartition("zoneinfo/")[2])
    else:
        candidates.append("UTC")
    for candidate in candidates:
        # A path is no name: a copy of a zone's file does not say which zone it is.
        if candidate and not candidate.startswith("/"):
            return time_zone(candidate)
    raise ValueError(
        "this host's time zone has no name; give one, like --tz UTC or --tz Asia/Shanghai"
    )


_SYSTEM = frozenset(
    (
        *("mysql", "information_schema", "performance_schema", "sys", "ndbinfo"),
        *("metrics_schema", "inspection_schema", "workload_schema"),
        *("tidb_cdc", "lightning_task_info", "lightning_metadata", "dm_heartbeat"),
    )
)
"""Databases of MySQL, MariaDB, TiDB and TiDB's tools, which TiCDC never replicates."""
_PREFIXES = ("#mysql50#", "__tidb_br_temporary_")
"""Prefixes: MySQL's and MariaDB's for a folder by its name on disk; BR's for system copies."""
_LETTERS = str.maketrans({"ß": "s", "\u0131": "i"})
_UNSEEN = frozenset(("Mn", "Me", "Cf", "Cc"))
"""Categories of characters that some collation ignores: accents, joiners, direction marks."""


def spelling(name: str) -> str:
    """Return one text for all spellings of a name that a server may find equal.

    Servers compare database names with case, without it, or by a collation of information_schema,
    which may ignore accents, width and trailing spaces. This text ignores all of that, so two names
    that differ in it are different on every server.
    """
    if name.isascii():
        return name.lower().rstrip()
    plain = unicodedata.normalize("NFKD", name.translate(_LETTERS)).casefold().translate(_LETTERS)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in _UNSEEN).rstrip()


def is_system(schema: str) -> bool:
    """Return whether a server, or a tool beside it, keeps its own tables in this database."""
    plain = spelling(schema)
    return plain in _SYSTEM or plain.startswith(_PREFIXES)


def why_reserved(schema: str, state_schema: str) -> str:
    """Return whose reserved database this is, with the remedy, or empty.

    Only its owner has a remedy; tables may use every other name.
    """
    if spelling(schema) == spelling(state_schema):
        return (
            f"has the name of the state schema {state_schema}, in which this program keeps its progress "
            "(before the first start you can also choose another --state-schema)"
        )
    return (
        "has the name of a system schema, in which the server keeps its own tables"
        if is_system(schema)
        else ""
    )
