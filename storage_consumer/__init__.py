"""Read the change files that TiCDC writes to object storage and keep a MySQL-compatible database equal to the source.

`Consumer` is the library entry; `RoundSummary` is the result of one round.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from storage_consumer.summary import RoundSummary, TableSummary

if TYPE_CHECKING:
    from storage_consumer.api import Consumer

__all__ = ["Consumer", "RoundSummary", "TableSummary", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import `Consumer` at first use: it loads PySpark, which neither a worker nor ``--help`` needs."""
    if name == "Consumer":
        return import_module("storage_consumer.api").Consumer
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
