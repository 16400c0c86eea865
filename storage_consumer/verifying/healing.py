"""The commands that make a target's table equal to the source again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from storage_consumer.plan.table_words import table_flag
from storage_consumer.verifying.result import TableResult


def heal_command(result: TableResult, reaching: Sequence[str]) -> str:
    """Return what to do about a table that differs; empty if nothing is to be done. `reaching`: the flags that lead to the target.

    First a command that can be pasted; after it, what a person has to do, and the command that lets the table go on.
    """
    if not result.different_rows and not result.structure:
        return ""
    pause, done = (
        " ".join(["storage-consumer", "table", verb, table_flag(result.table), *more, shlex.join(reaching)]).strip()
        for verb, more in (("pause", ()), ("reload-done", ("--at TSO",)))
    )
    return f"{pause} -- reload the table from the source, then run this with the TSO of the copy: {done}"
