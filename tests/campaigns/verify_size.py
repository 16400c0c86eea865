"""``python -m tests.campaigns verify-size``: how fast a large table is compared, and that one changed row of it is found.

The source is a TiDB, the targets are those of ``--servers``. Both sides make the same rows by the same statements. A line for each target tells
the rows a second that each side was read with. Exit code 1 when equal tables are found different, or the changed row is not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from storage_consumer.rows.comparison import TableResult, VerifyOutcome
from tests.contract.verify_rigs import VerifyRig
from tests.harness.servers import SERVERS, DatabaseServer

_FIRST = 1_000
"""Rows that are sent; the others are copied from them, twice as many by each statement."""
_TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, v VARCHAR(60), d DECIMAL(12,2), at DATETIME(3), KEY (n))"


def main() -> int:
    """Run it."""
    options = _options()
    wrong = 0
    print(f"{'target':8} {'rows':>12} {'seconds':>8} {'rows/s a side':>14}  outcome")
    with SERVERS["tidb"]() as source:
        for kind in options.servers.split(","):
            with SERVERS[kind]() as target:
                wrong += _compared(source, target, options)
            source.query("DROP DATABASE shop")
    return int(wrong > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--servers", default="mariadb", help="kinds of targets, by commas (default: mariadb)")
    parser.add_argument("--rows-per-second", type=int, default=0, help="as of verify (default: any number)")
    parser.add_argument("--repeat", type=int, default=1, help="how often the equal table is compared")
    return parser.parse_args()


def _compared(source: DatabaseServer, target: DatabaseServer, options: argparse.Namespace) -> int:
    """Compare both sides, equal and with one row changed; return how often that went wrong."""
    rig = VerifyRig(source, target)
    for run in (rig.at_source, rig.at_target):
        run(_TABLE)
        _fill(run, options.rows)
    rig.at_rest("t")
    found = [_told(rig, target.kind, options) for _ in range(options.repeat)]
    rig.at_target(f"UPDATE t SET v = 'changed' WHERE id = {options.rows // 3}")
    found.append(_told(rig, target.kind, options))
    return sum(
        (result.outcome, result.differing, result.missing, result.extra) != wanted
        for result, wanted in zip(
            found, [(VerifyOutcome.EQUAL, 0, 0, 0)] * options.repeat + [(VerifyOutcome.DIFFERENT, 1, 0, 0)], strict=True
        )
    )


def _fill(run: Callable[..., None], rows: int) -> None:
    """Make the rows of one side; what they hold follows from their ids."""
    columns = "id, MOD(id * 7919, 1000003), CONCAT('row ', id, ' of many'), id / 7, '2024-02-29 12:00:00' + INTERVAL id SECOND"
    run("CREATE TABLE ids (id BIGINT PRIMARY KEY)")
    run("INSERT INTO ids VALUES (%s)", rows=[(number,) for number in range(_FIRST)])
    run(f"INSERT INTO t SELECT {columns} FROM ids")
    for start in range(_FIRST, rows, _FIRST * 100):
        more = min(rows - start, _FIRST * 100)
        steps = " UNION ALL ".join(f"SELECT {step} AS step" for step in range(-(-more // _FIRST)))
        made = f"SELECT ids.id + {start} + {_FIRST} * steps.step AS id FROM ids, ({steps}) AS steps"
        run(f"INSERT INTO t SELECT {columns} FROM ({made}) AS made WHERE id < {rows}")
    run("DROP TABLE ids")


def _told(rig: VerifyRig, kind: str, options: argparse.Namespace) -> TableResult:
    began = time.monotonic()
    result = rig.compared(tables="shop.t", rows_per_second=options.rows_per_second, chunk_rows=50_000)["t"]
    seconds = time.monotonic() - began
    print(f"{kind:8} {result.rows:>12,} {seconds:>8.1f} {result.rows / seconds:>14,.0f}  {_shown(result)}", flush=True)
    return result


def _shown(result: TableResult) -> str:
    counts: Sequence[int] = (result.differing, result.missing, result.extra)
    return f"{result.outcome}{f' {counts}' if any(counts) else ''} {result.reason}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
