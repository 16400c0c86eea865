"""``python -m tests.campaigns equal-values``: pairs of values that a target may find equal, of every collation of TiDB 8.5, on three servers.

By kinds of key and ways to write; see `tests.harness.equal_values`. Exit code 1 if a row went without a word.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

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
    parser.add_argument("--server", choices=_SERVERS, action="append", help="default: all that are there")
    asked = parser.parse_args()
    chosen = asked.server or [kind for kind in _SERVERS if kind in servers.KINDS]
    share = -(-asked.pairs // (len(chosen) * len(COLLATIONS) * len(KEYS) * len(HOW)))
    total = Found()
    for kind in chosen:
        with _SERVERS[kind]() as server:
            for collation in COLLATIONS:
                total.add(_tried(server, collation, asked.seed, share))
    print(f"{total.pairs} pairs: {total.kept} kept, {total.said} said, {len(total.lost)} lost without a word")
    return 1 if total.lost else 0


def _tried(server: servers.DatabaseServer, collation: str, seed: int, share: int) -> Found:
    """Write pairs of a collation under each kind of key; return what became of them."""
    found = Found()
    for key in KEYS:
        _try(server, collation, key, seed, share, found)
    print(f"{server.kind:8}{collation:22}{found.pairs:8} pairs {found.kept:8} kept {found.said:8} said {len(found.lost):4} lost", flush=True)  # fmt: skip
    return found


def _try(server: servers.DatabaseServer, collation: str, key: str, seed: int, share: int, total: Found) -> None:
    """Write pairs under one kind of key, in each way, and add to `total` what became of them."""
    try:
        made = Pairs(server, collation, key)
    except (NotReplicable, pymysql.err.MySQLError) as fault:
        print(f"{server.kind} {collation} {key}: the table is refused: {fault}", flush=True)
        return
    with made:
        for how in HOW:
            chance = random.Random(f"{seed} {collation} {key} {how}")  # noqa: S311 - data
            found = made.run(pairs(collation, chance, share, key), how)
            total.add(found)
            for one in found.lost[:3]:
                print(f"{server.kind} {collation} {key} {how}: {one}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
