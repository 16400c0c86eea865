"""``python -m tests.campaigns.grammar``: what each server makes of each form of TiDB's grammar, as the table that is kept.

Plays all forms that TiDB takes on a private MariaDB and MySQL, and compares their rows and keys with TiDB's. Exit code 0 when all is
as the table says and as it is at TiDB, 1 otherwise. ``--record`` plays them on TiDB first, ``--write`` keeps what is found.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.campaigns.grammar import recording, table
from tests.campaigns.grammar.forms import ALL
from tests.campaigns.grammar.playing import play
from tests.campaigns.grammar.source import played
from tests.harness.servers import SERVERS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.grammar", description="Forms of statements by servers."
    )
    parser.add_argument(
        "--record", action="store_true", help="play the forms on TiDB first, and keep what it makes of them"
    )
    parser.add_argument("--write", action="store_true", help="keep the table, in place of comparing with it")
    parser.add_argument("--forms", default="", help="print only those whose group or text has this")
    asked = parser.parse_args(arguments)
    if asked.record:
        with SERVERS["tidb"]() as server:
            recording.write(list(played(server, ALL)))
    forms = table.taken()
    found: dict[str, dict[str, str]] = {"tidb": {form.name: table.on_tidb(form, source) for form, source in forms}}
    problems: list[str] = []
    for kind in table.PLAYED:
        with SERVERS[kind]() as server:
            outcomes = {form.name: one for form, one in play(server, forms)}
        found[kind] = {name: table.shown(one) for name, one in outcomes.items()}
        problems += [f"{kind}, {name}: {text}" for name, one in outcomes.items() for text in one.problems]
    lines = list(table.lines([form for form, _ in forms], found))
    print("\n".join(lines[:1] + [line for line in lines[1:] if asked.forms in line]))
    _sum_up(found)
    if asked.write:
        table.PATH.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        problems += [f"not as it is kept: {line}" for line in lines if line not in set(table.text().splitlines())]
    print("\n".join(problems))
    return 1 if problems else 0


def _sum_up(found: Mapping[str, Mapping[str, str]]) -> None:
    """How many forms have which outcome."""
    for kind, outcomes in found.items():
        words = Counter(part.partition(":")[0] for outcome in outcomes.values() for part in outcome.split("; "))
        print(f"{kind}: {', '.join(f'{count} {word}' for word, count in sorted(words.items()))}")


if __name__ == "__main__":
    sys.exit(main())
