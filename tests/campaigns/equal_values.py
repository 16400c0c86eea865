"""``python -m tests.campaigns equal-values``: pairs of values that a target may find equal, of every collation of TiDB 8.5, on three servers.

By kinds of key and ways to write; see `tests.harness.equal_values`. Exit code 1 if a row went without a word.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack

import pymysql.err

from storage_consumer.errors import NotReplicable
from tests.harness import servers
from tests.harness.equal_values import COLLATIONS, HOW, KEYS, Found, Pairs, pairs

_SERVERS: Mapping[str, Callable[[], AbstractContextManager[servers.DatabaseServer]]] = {
    "mariadb": servers.mariadb,
    "mysql": servers.mysql,
    "tidb": servers.tidb,
}


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns equal-values")
    parser.add_argument("--pairs", type=int, default=100_000, help="of all together (default: 100000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=_SERVERS, action="append", help="default: all three")
    asked = parser.parse_args()
    chosen = asked.server or list(_SERVERS)
    share = -(-asked.pairs // (len(chosen) * len(COLLATIONS) * len(KEYS) * len(HOW)))
    total, table = Found(), defaultdict[tuple[str, str], Found](Found)
    for kind in chosen:
        with ExitStack() as stack:
            server = stack.enter_context(_SERVERS[kind]())
            for collation in COLLATIONS:
                for key in KEYS:
                    try:
                        made = Pairs(server, collation, key)
                    except (NotReplicable, pymysql.err.MySQLError) as fault:
                        print(f"{kind} {collation} {key}: the table is refused: {fault}", flush=True)
                        continue
                    with made:
                        for how in HOW:
                            chance = random.Random(f"{asked.seed} {collation} {key} {how}")  # noqa: S311 - data
                            found = made.run(pairs(collation, chance, share, key), how)
                            table[kind, collation].add(found)
                            for one in found.lost[:3]:
                                print(f"{kind} {collation} {key} {how}: {one}", flush=True)
                found = table[kind, collation]
                print(f"{kind:8}{collation:22}{found.pairs:8} pairs {found.kept:8} kept {found.said:8} said {len(found.lost):4} lost", flush=True)  # fmt: skip
                total.add(found)
    print(f"{total.pairs} pairs: {total.kept} kept, {total.said} said, {len(total.lost)} lost without a word")
    return 1 if total.lost else 0


if __name__ == "__main__":
    sys.exit(main())
