"""``python -m tests.campaigns equal-values``: pairs of values that a target may find equal, of every collation of TiDB 8.5, on three servers.

By kinds of key and ways to write; see `tests.harness.equal_values`. Some pairs more are loaded from an export, by the program, each into
a table of its own. Exit code 1 if a row went without a word.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pymysql.err

from storage_consumer.errors import NotReplicable
from tests.harness import servers
from tests.harness.equal_values import COLLATIONS, HOW, KEYS, NOT_WRITTEN, Found, Pair, Pairs, body_of, pairs
from tests.harness.local_spark import local_spark
from tests.harness.small_bucket import SmallBucket, ts
from tests.harness.small_export import export
from tests.integration.rounds import once

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
    parser.add_argument("--loads", type=int, default=5, help="pairs that are loaded, of each collation and kind of key (default: 5)")  # fmt: skip
    asked = parser.parse_args()
    chosen = asked.server or [kind for kind in _SERVERS if kind in servers.KINDS]
    share = -(-asked.pairs // (len(chosen) * len(COLLATIONS) * len(KEYS) * len(HOW)))
    total = Found()
    for kind in chosen:
        with _SERVERS[kind]() as server:
            for collation in COLLATIONS:
                total.add(_tried(server, collation, asked.seed, share))
            if asked.loads:
                total.add(_loaded(server, asked.seed, asked.loads))
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


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _loaded(server: servers.DatabaseServer, seed: int, count: int) -> Found:
    """Load an export that has a table for each pair; return what became of them."""
    found, made = Found(), dict[str, Pair]()
    with tempfile.TemporaryDirectory(prefix="equal-values-") as name, local_spark():
        folder, bucket = Path(name, "export"), SmallBucket(root=Path(name, "bucket"))
        for collation, key in itertools.product(COLLATIONS, KEYS):
            chance = random.Random(f"{seed} {collation} {key} load")  # noqa: S311 - data
            for number, pair in enumerate(pairs(collation, chance, count, key)):
                table = f"{collation}_{key}_{number}"
                texts = (
                    f"0x{text.encode().hex()}" if collation == "binary" and text else _quoted(text) for text in pair
                )
                rows = ",\n".join(f"(1,{number},{text})" for number, text in enumerate(texts))
                export(folder, 10, {table: [rows]}, body=f"  {body_of(collation, key)}")
                made[table] = pair
        bucket.metadata(ts(20))
        halted = once(bucket, server, tz="UTC", dump=folder.as_uri(), start_ts=ts(1), state_schema="loads").halted
    errors = {each.table.removeprefix("d."): each.error for each in halted}
    for table, pair in made.items():
        error = errors.get(table, "")
        if error and NOT_WRITTEN not in error:
            print(f"{server.kind} {table} is refused: {error}", flush=True)
            continue
        found.pairs += 1
        found.said += bool(error)
        there = [] if error else [text for (text,) in server.query(f"SELECT v FROM d.{table} ORDER BY id")]
        is_kept = there == [each.encode() if there and isinstance(there[0], bytes) else each for each in pair]
        found.kept += is_kept
        if not error and not is_kept:
            found.lost.append(f"load of {table}: {pair} became {there}")
    print(f"{server.kind:8}{'loaded':22}{found.pairs:8} pairs {found.kept:8} kept {found.said:8} said {len(found.lost):4} lost", *found.lost, sep="\n", flush=True)  # fmt: skip
    return found


if __name__ == "__main__":
    sys.exit(main())
