"""What a command's options lead to: bucket, target, state, source, opened once on demand.

What opens them is imported as late, since many commands need one of them, and some none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from storage_consumer.config.load import Loaded, load, load_target
from storage_consumer.config.settings import Secrets, Server, Upstream
from storage_consumer.config.sources import with_files_read

if TYPE_CHECKING:
    from storage_consumer.bucket.storage import Storage
    from storage_consumer.checkpoint.store import StateStore

Opener = Callable[[Upstream, Secrets], "Storage"]


class Session:
    """One command's way to bucket, target and state; raises `ConfigError` on demand."""

    def __init__(
        self,
        options: Mapping[str, object],
        environ: Mapping[str, str],
        open_storage: Opener | None = None,
    ) -> None:
        """Take keyword options as texts or values; `open_storage`: instead of the stores' own."""
        self.environ = environ
        self.given = options
        self._open_storage = open_storage

    @cached_property
    def options(self) -> dict[str, object]:
        """The options, with the files that they name read: once, since those may be pipes."""
        return with_files_read(self.given, self.environ)

    @cached_property
    def target(self) -> Server:
        """The target; commands that need no bucket ask for nothing else."""
        # Once both ends are known it is one of them: a password's file may be a pipe.
        if "ends" in vars(self):
            return Server(settings=self.ends.config.downstream, password=self.ends.secrets.password)
        return load_target(self.options, self.environ)

    @cached_property
    def bucket(self) -> Loaded:
        """The settings of the bucket alone."""
        return load(self.options, self.environ, target=False)

    @cached_property
    def ends(self) -> Loaded:
        """The settings of bucket and target."""
        return load(self.options, self.environ)

    @contextmanager
    def state(self, *, older: bool = False) -> Iterator[StateStore]:
        """Yield the target's state and close it; raise `TargetUnavailable`.

        `older`: also one of an earlier version.
        """
        from storage_consumer.checkpoint.store import OLDER_TOO, operated  # noqa: PLC0415 - see above

        readable = {"readable": OLDER_TOO} if older else {}
        with closing(operated(self.target.settings, self.target.password, **readable)) as found:
            yield found

    def storage(self, upstream: Upstream, secrets: Secrets) -> Storage:
        """Return the store of a bucket, or of what lies near it."""
        from storage_consumer.bucket.stores import open_storage  # noqa: PLC0415 - see above

        return (self._open_storage or open_storage)(upstream, secrets)

    def open_bucket(self) -> tuple[Loaded, Storage]:
        """Return the settings of the bucket, completed by what it shows, and its store.

        Raises `ConfigError` also for settings that the bucket leaves open, and
        `StorageUnavailable`.
        """
        from storage_consumer.bucket.inspector import completed, inspect  # noqa: PLC0415 - see above

        loaded = self.bucket
        storage = self.storage(loaded.config.upstream, loaded.secrets)
        if loaded.unset:
            loaded = completed(
                loaded, inspect(storage, loaded.config.upstream, loaded.origins, time.time())
            )
        return loaded, storage
