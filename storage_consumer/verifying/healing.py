"""The command that makes a target's table equal to the source again."""

from __future__ import annotations

import json
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
    keys = [list(difference.key.values()) for difference in result.differences]
    # A key of bytes that are no text has no form that could be given back.
    few = len(keys) == result.different_rows <= FEW_KEYS and all(keys) and not any(_is_hidden(key) for key in keys)
    if few and not result.structure:
        # JSON, since a key may hold anything: one list for each row, with the values of the key's columns.
        words.append(f"--keys {shell_word(json.dumps(keys, ensure_ascii=False, separators=(',', ':')))}")
    else:
        words.append("--replace")
    return " ".join([*words, shlex.join(reaching)]).strip()


def _is_hidden(key: Sequence[str]) -> bool:
    return any(value.startswith("0x") for value in key)
