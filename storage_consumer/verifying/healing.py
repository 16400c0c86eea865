"""The commands that make a target's table equal to the source again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from storage_consumer.plan.table_words import copy_ways, table_flag
from storage_consumer.verifying.result import TableResult


def heal_command(result: TableResult, reaching: Sequence[str]) -> str:
    """Return what to do about a table that differs; empty if nothing is to be done. `reaching`: the flags that lead to the target.

    First a command that can be pasted; after it, what a person has to do, and the command that lets the table go on.
    """
    if not result.different_rows and not result.structure:
        return ""
    reach = shlex.join(reaching)
    pause = f"storage-consumer table pause {table_flag(result.table)} {reach}".strip()
    return f"{pause} -- export the table after that, or add --source to the next command, then run: {copy_ways(result.table, reach)}"
