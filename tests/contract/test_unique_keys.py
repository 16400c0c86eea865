"""Tables with further unique keys, on every server."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from storage_consumer.checkpoint.store import StateStore
from storage_consumer.rows.spec import JobSpec, TablePlan
from storage_consumer.target.bucket_writer import TargetWriter
from tests.contract.state_rigs import BUCKET
from tests.contract.test_writer import real_rig
from tests.harness.servers import DatabaseServer
from tests.unit.halves import as_runs, table


@pytest.mark.server
def test_unique_values_move_between_writers(server: DatabaseServer) -> None:
    """Four writers in parallel, whose rows take unique values from one another, leave each row as it should be: the second time none is blocked."""
    rig = real_rig(server, "c0", "c1")
    rig.close()
    state = StateStore(rig.downstream, "")
    state.open(BUCKET)
    state.lease.acquire("me", 30)
    work = replace(table(), has_other_unique_keys=True)
    chance = random.Random(3)  # noqa: S311 - data, not a secret
    values = list(range(2_000))
    for _ in range(3):
        chance.shuffle(values)
        lines = [f"{key}\t{value}".encode() for key, value in enumerate(values)]
        for is_settled in (False, True):
            spec = replace(rig.spec, partitions=4, epoch=state.lease.epoch, window_id=state.lease.open_window(4, 0))
            plan = replace(work, is_settled=is_settled)

            def write(task: int, spec: JobSpec = spec, lines: list[bytes] = lines, plan: TablePlan = plan) -> int:
                with closing(TargetWriter(spec, "", task)) as writer:
                    shares = [lines[start + task : start + 400 : 4] for start in range(0, len(lines), 400)]
                    blocked = sum(writer.write_runs(plan, as_runs([], share)).blocked for share in shares)
                    writer.finish()
                    return blocked

            with ThreadPoolExecutor(4) as threads:
                blocked = sum(threads.map(write, range(4)))
            assert not (blocked and is_settled)
        assert rig.rows() == Counter((str(key), str(value)) for key, value in enumerate(values))
    state.close()
