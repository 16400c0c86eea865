"""Why a form halts where it does: there is nothing else that would be right."""

from __future__ import annotations

import re

REASONS: dict[str, tuple[str, str]] = {
    "no GB18030": (
        r"error (?:1115|1273): Unknown (?:character set|collation): '(?i:gb18030)",
        "MariaDB has no GB18030. Another charset's collation takes other texts for equal, so that keys would differ.",
    ),
    "primary key over all partitions": (
        "error 1503: A PRIMARY KEY must include",
        "Only TiDB has a primary key without the columns of the partitions. Rows are written by it: without one they would double.",
    ),
    "rows of partitions by KEY": (
        "takes the rows of a partition by KEY",
        "TiDB puts other rows into such a partition than MySQL and MariaDB do, so other rows would go.",
    ),
    "rows outside of their partition": (
        "error 1737: Found a row that does not match the partition",
        "WITHOUT VALIDATION lets TiDB have rows in a partition that are none of its; MariaDB cannot hold them there.",
    ),
    "no default partition": (
        r"error 1064.*(?:DEFAULT\)|VALUES IN \(DEFAULT|`z` DEFAULT|, DEFAULT\))",
        "MySQL has no partition for all other values of a list, so their rows would have no place.",
    ),
    "function of TiDB in a view": (
        "error 1305: FUNCTION .* does not exist",
        "The view shows what only TiDB knows.",
    ),
    "never stored": (
        r"was not run, because TiCDC does not store such a statement.*(?:SEQUENCE|none in statements of this kind.*PLACEMENT)",
        "TiCDC stores no sequences and placement policies, so such a statement was written by somebody else.",
    ),
    "function that the server lacks": (
        "error 3763: Expression of generated column .* contains a disallowed function",
        "MySQL computes no generated column with this function; without it the column would lose its values.",
    ),
}
"""Name → what tells it in the outcome, and why nothing else is right."""


def reason_of(outcome: str) -> str:
    """``halts: name of the reason``; with the server's own words where none is known."""
    for name, (pattern, _) in REASONS.items():
        if re.search(pattern, outcome):
            return f"halts: {name}"
    return f"halts: unexplained: {outcome[:200]}"
