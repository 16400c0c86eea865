"""The facts that checks judge, each read when first asked for, with its own deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar, cast

from storage_consumer.bucket.inspector import InspectedBucket, inspect, refuse_foreign
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores import open_storage
from storage_consumer.checkpoint.store import StateStore, operated
from storage_consumer.config.settings import Config, Downstream, Secrets, Upstream
from storage_consumer.driver.open_copies import OpenCopy
from storage_consumer.errors import StorageConsumerError
from storage_consumer.model import TableName
from storage_consumer.operating.exporting import opened_export
from storage_consumer.plan.selection import Selection
from storage_consumer.surroundings import Surroundings, surroundings
from storage_consumer.target.database import ServerFacts, Variables, read_server
from storage_consumer.target.state_tables import STATE_VERSION
from storage_consumer.watch.report import Snapshot

_LISTING = 20
"""How many times as long as another question one may take that lists the whole bucket."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorInput:
    """What is examined."""

    config: Config
    secrets: Secrets
    origins: Mapping[str, str]
    """See `Loaded.origins`."""
    environ: Mapping[str, str]
    inspected: InspectedBucket | None = None
    """The bucket as somebody has just inspected it, for the checks of the target; None: it is
    listed for them.
    """
    makes_export: bool = False
    """Whether a run makes the export itself that a new feed begins with."""
    has_bucket: bool = True
    has_target: bool = True
    seconds: float = 30.0
    """How long one question may take; one that lists the bucket has `_LISTING` times as long."""


class Unread(Exception):
    """Facts that could not be read."""

    def __init__(self, why: str, check: str = "") -> None:
        """Say why; `check` is the check that reports it as a fault, empty where it is none."""
        super().__init__(why)
        self.why, self.check = why, check


def read_within(seconds: float, read: Callable[[], Answer], check: str = "") -> Answer | Unread:
    """Return what `read` returns, or why not; abandon it if it takes longer than `seconds`."""
    found: list[Answer] = []
    faults: list[str] = []

    def run() -> None:
        try:
            found.append(read())
        except StorageConsumerError as error:
            faults.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever happens outside is a finding
            faults.append(
                f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            )

    thread = threading.Thread(target=run, name="doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    silence = (
        f"no answer within {seconds:g} s: check the address, and whether a firewall or proxy "
        "swallows what is sent there"
    )
    return Unread(faults[0] if faults else silence, check)


@dataclass(frozen=True, slots=True)
class StateFacts:
    """The state in the target."""

    version: int | None
    """None if there is no state."""
    snapshot: Snapshot | None = None
    """None for a state that this program cannot read."""


class Facts:
    """Facts on bucket, target, state and machine; unreadable properties raise `Unread`."""

    def __init__(self, given: DoctorInput, groups: Collection[str]) -> None:
        """Prepare without reading; `groups`: those whose checks will ask."""
        self._given = given
        self._groups = groups
        self._known: dict[str, object] = {}
        self.config = given.config
        self.now = time.time()
        self.local_infile = given.config.tuning.local_infile

    def _once(self, check: str, read: Callable[[], Answer], times: int = 1) -> Answer:
        # A fault is kept as well: what is silent takes the whole time each time it is asked.
        if check not in self._known:
            self._known[check] = read_within(self._given.seconds * times, read, check)
        found = self._known[check]
        if isinstance(found, Unread):
            raise found
        return cast("Answer", found)

    @property
    def upstream(self) -> Upstream:
        """The settings of the bucket."""
        if not self._given.has_bucket:
            raise Unread("--upstream-uri was not given")
        return self.config.upstream

    @property
    def downstream(self) -> Downstream:
        """The settings of the target."""
        if not self._given.has_target:
            raise Unread("--downstream-uri was not given")
        return self.config.downstream

    @property
    def storage(self) -> Storage:
        """The bucket, which has answered."""
        upstream = self.upstream

        def opened() -> Storage:
            storage = open_storage(upstream, self._given.secrets)
            storage.check()
            return storage

        return self._once("bucket-reachable", opened)

    @property
    def bucket(self) -> InspectedBucket:
        """What `inspect` makes of the bucket."""
        if self._given.inspected:
            return self._given.inspected
        storage, given = self.storage, self._given
        opened = partial(open_storage, secrets=given.secrets)

        def read() -> InspectedBucket:
            bucket = inspect(storage, self.upstream, given.origins, time.time(), opened)
            refuse_foreign(bucket)
            return bucket

        return self._once("bucket-layout", read, _LISTING)

    @property
    def export(self) -> OpenCopy:
        """The export that a new feed is to begin with, read as a run reads it."""
        config, given = self.config, self._given
        if given.makes_export or not config.loading.dump:
            raise Unread("no export was given by --dump")
        if given.has_target and (known := self.state.snapshot) and known.storage_checkpoint:
            raise Unread("this feed has begun, so --dump has no effect")
        selection = Selection.of(config.selecting, config.downstream.state_schema)

        def is_taken(name: TableName) -> bool:
            return not selection.filter.leaves_out(name)

        def opened() -> OpenCopy:
            try:
                return opened_export(
                    config.loading.dump, self.upstream, given.secrets, is_taken=is_taken
                )[0]
            except StorageConsumerError as fault:
                raise StorageConsumerError(
                    f"the export of --dump could not be read: {fault}"
                ) from fault

        return self._once("bucket-export", opened, _LISTING)

    @cached_property
    def names(self) -> tuple[TableName, ...]:
        """The replicated tables, as the target is to have them; none if the bucket was not read."""
        if not {"bucket", "target"} & {*self._groups}:
            return ()
        try:
            tables = self.bucket.tables
        except Unread:
            return ()
        selection = Selection.of(self.config.selecting, self.config.downstream.state_schema)
        names = (table.name for table in tables if table.name is not None)
        taken = (
            selection.routes.target(name) for name in names if not selection.filter.leaves_out(name)
        )
        return tuple(sorted(taken))

    @property
    def server(self) -> ServerFacts:
        """The server of the target."""
        schemas = {name.schema for name in self.names}
        return self._once(
            "target-reachable",
            partial(read_server, self.downstream, self._given.secrets.password, schemas),
        )

    @property
    def variables(self) -> Variables:
        """The server's settings."""
        return self.server.variables

    @property
    def state(self) -> StateFacts:
        """The state in the target. It is read without the lease."""

        def read() -> StateFacts:
            with closing(StateStore(target, password, "reader")) as reader:
                version = reader.schema.stored_version()
            if version != STATE_VERSION:
                return StateFacts(version)
            with closing(operated(target, password)) as state:
                return StateFacts(version, state.snapshot())

        target, password = self.downstream, self._given.secrets.password
        if {"target", "network"} & {*self._groups}:
            # A target that does not answer is one fault, not two.
            _ = self.server
        return self._once("state-schema", read)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What Spark finds on this machine."""
        return surroundings(self._given.environ)
