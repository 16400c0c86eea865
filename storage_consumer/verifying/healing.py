"""The command that makes a target's table equal to the source again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from storage_consumer.plan.table_words import shell_word, table_flag
from storage_consumer.verifying.result import TableResult

FEW_KEYS = 20
"""Most differing keys for which only their rows are loaded."""


def heal_command(result: TableResult, reaching: Sequence[str]) -> str:
    """Return the command for a table that differs; empty if none is needed. `reaching`: the flags that lead to the target."""
    if not result.different_rows and not result.structure:
        return ""
    words = ["storage-consumer", "load", table_flag(result.table)]
    keys = [difference.key for difference in result.differences]
    few = result.different_rows <= FEW_KEYS and len(keys) == result.different_rows and all(keys)
    if few and not result.structure:
        # Each key as its values, in the order of the key's columns.
        texts = [",".join(each.replace("\\", "\\\\").replace(",", "\\,") for each in key.values()) for key in keys]
        words.append("--keys " + " ".join(map(shell_word, texts)))
    else:
        words.append("--replace")
    return " ".join([*words, shlex.join(reaching)]).strip()
