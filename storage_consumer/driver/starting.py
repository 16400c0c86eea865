"""From what an earlier run left to the manager of the next rounds."""

from __future__ import annotations

from storage_consumer.bucket.metadata import refuse_ahead_of_clock
from storage_consumer.config.settings import Config
from storage_consumer.driver.remedies import table_command
from storage_consumer.plan.directories import Restart
from storage_consumer.plan.manager import ConsumerManager
from storage_consumer.plan.selection import Selection
from storage_consumer.plan.touches import refuse_other_places


def manager_of(config: Config, restart: Restart, storage_checkpoint: int, now: float) -> ConsumerManager:
    """Return the manager; raise `ConfigError` if what is stored cannot be continued under these settings.

    `storage_checkpoint` is the highest that any run has seen, `now` seconds since 1970-01-01 UTC by our clock.
    """
    # A checkpoint beyond any clock would make all rows look applied, so the start is refused.
    highest = max(storage_checkpoint, restart.checkpoint, *restart.tables.values())
    refuse_ahead_of_clock(highest, config.downstream.state_schema, now)
    selection = Selection.of(config.selecting, config.downstream.state_schema, restart.skipped)
    refuse_other_places(restart, selection.routes)
    return ConsumerManager(
        restart,
        config.tuning.gap_timeout,
        tells_time=config.upstream.tells_time,
        selection=selection,
        command=lambda verb, name: table_command(verb, name, config.downstream),
        makes_bare=config.loading.no_copy,
    )
