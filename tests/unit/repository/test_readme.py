"""The README says what the program does: options, differences, error classes, modules."""

from __future__ import annotations

import re
from pathlib import Path

from storage_consumer import errors
from storage_consumer.config.option import Option
from storage_consumer.config.options import OPTIONS
from storage_consumer.ddl.rules.catalogue import DIFFERENCES
from tests.readme import README

ROOT = Path(__file__).resolve().parents[2]


def option_row(option: Option) -> str:
    """The README's line for an option."""
    flag = f"`--{option.name}`" if option.flag else f"`{option.environment}`"
    default = option.shown_default or (f"{option.default}" if option.default not in ("", None, ()) else "")
    return f"| {flag} | {option.help.replace('|', '/')} | {default.lower() if option.switch else default} |"


def test_every_option_has_its_line() -> None:
    """Each option stands in the README with the help and the default that the program has."""
    missing = [row for row in map(option_row, OPTIONS) if row not in README]
    assert missing == []


def test_every_difference_has_its_line() -> None:
    """Each change that may be made to a DDL stands in the README."""
    missing = [f"| {name} | {text} |" for name, text in DIFFERENCES.items() if f"| {name} | {text} |" not in README]
    assert missing == []


def test_every_error_class_is_named() -> None:
    """Each class of the error tree stands in the README."""
    classes = [n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.StorageConsumerError)]
    missing = [name for name in classes if name != "StorageConsumerError" and f"`{name}`" not in README]
    assert missing == []


def test_named_files_exist() -> None:
    """Each path of a module, folder or example that the README names is there."""
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+(?:\.py|/))`", README)) | set(
        re.findall(r"\]\((conf/[^)]+)\)", README)
    )
    gone = [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "storage_consumer"))]
    assert gone == []
