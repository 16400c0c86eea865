"""Faults of an S3 store: answers that are refusals, late, cut short or old. A proxy before a real server spoils them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

from storage_consumer.bucket.stores import s3
from tests.campaigns.faults.target import LIMIT
from tests.campaigns.faults.trial import Fault, World
from tests.harness.faulty_proxy import PLACES, FaultyProxy
from tests.harness.s3_server import S3Server

_FEW = 3
_PLACES = {"short": ("schema files", "data files"), "page": ("listing", "metadata", "schema files", "data files")}
"""Where else than in listings and data files an answer is spoiled."""
_PATIENCE = 2
"""Seconds for which the driver's client waits for an answer here; tasks wait as long as they do elsewhere."""


@dataclass(slots=True, kw_only=True)
class Store:
    """A bucket for each trial, behind a proxy."""

    server: S3Server
    proxy: FaultyProxy
    buckets: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    """Key → content, as they were uploaded last."""

    def serve(self, world: World) -> None:
        """From now on the program reads from the store, a new bucket."""
        self.buckets += 1
        self.objects = {}
        query = world.bucket.uri.partition("?")[2]
        uri = self.server.uri(self.name, "", self.server.reader, endpoint=self.proxy.endpoint)
        world.upstream = f"{uri}&{query}"

    @property
    def name(self) -> str:
        """Of this trial's bucket."""
        return f"fault-{self.buckets}"

    def put(self, world: World) -> None:
        """Upload what was shown."""
        root = world.bucket.root
        self.server.upload(root, self.name)
        files = [path for path in root.rglob("*") if path.is_file()]
        self.objects = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


@contextmanager
def spoiled(world: World, store: Store, fault: str, where: str, faults: int = 0) -> Iterator[None]:
    """The second round meets the fault so many times, or to the block's end where that is 0."""
    store.serve(world)

    def put() -> None:
        known = store.objects
        store.put(world)
        if world.cut == 0:
            store.proxy.spoil(fault, PLACES.get(where, ""), faults or 1_000_000, known)
        elif fault == "stale":
            store.proxy.heal()

    world.upload = put
    try:
        yield
    finally:
        left = store.proxy.heal()
        world.upload = partial(store.put, world)
    if faults and left:
        message = f"only {faults - left} of {faults} answers were spoiled"
        raise AssertionError(message)


@contextmanager
def hasty(world: World, store: Store, fault: str, where: str, faults: int = 0) -> Iterator[None]:
    """As `spoiled`; the driver gives an answer little time."""
    with patch.object(s3, "READ_TIMEOUT", _PATIENCE), spoiled(world, store, fault, where, faults):
        yield


def faults(store: Store) -> Iterable[Fault]:
    """All of this module."""
    yield from _passing(store)
    yield from _silent(store)
    for where in ("listing", "data files"):
        for name, kind, says in (  # in the middle of the work: code 2 would say that nothing was touched
            ("credentials expired", "expired", "ExpiredToken"),
            ("access refused", "denied", "AccessDenied"),
            ("clocks too far apart", "skewed", "RequestTimeTooSkewed"),
            ("the bucket is in another region", "moved", "the endpoint and the region"),
        ):
            yield Fault(
                name=f"S3: {name}",
                where=where,
                around=partial(spoiled, store=store, fault=kind, where=where),
                ends=says,
                options={"retry_limit": LIMIT},
            )
    stale = partial(spoiled, store=store, fault="stale")
    yield Fault(
        name="an old state of the bucket is shown again", where="listing, metadata", around=partial(stale, where="")
    )
    yield Fault(
        name="a listing older than metadata",
        where="listing",
        around=partial(stale, where="listing"),
        limit="a store has to list what was written before metadata",
    )


def _passing(store: Store) -> Iterable[Fault]:
    """What may pass by itself."""
    for name, kind, says in (
        ("S3 answers 503 SlowDown", "503", "SlowDown"),
        ("S3 answers 500", "500", "InternalError"),
        ("S3 bodies cut short", "cut", "s3://"),
        ("S3 bodies cut short, with a length that fits", "short", "the listing says"),
        ("a page for people in place of S3's answer", "page", "s3://"),
    ):
        for where in _PLACES.get(kind, ("listing", "data files")):
            always = partial(spoiled, store=store, fault=kind, where=where)
            yield Fault(name=f"{name} for a while", where=where, around=partial(always, faults=_FEW))
            options = {"retry_limit": LIMIT}
            yield Fault(name=f"{name} for ever", where=where, around=always, ends=says, options=options)


def _silent(store: Store) -> Iterable[Fault]:
    """What comes too late."""
    for name, kind, where in (
        ("S3 does not answer once", "silent", "metadata"),
        ("S3 stops in the middle of a body once", "stall", "schema files"),
    ):
        once = partial(hasty, store=store, fault=kind, where=where, faults=1)
        yield Fault(name=name, where=where, around=once)
    for where in ("listing", "data files", "schema files"):
        drops = partial(spoiled, store=store, fault="drip", where=where)
        yield Fault(name="S3's answers come drop by drop", where=where, around=drops)
    always = partial(hasty, store=store, fault="silent", where="metadata")
    options = {"retry_limit": LIMIT}
    yield Fault(name="S3 does not answer for ever", where="metadata", around=always, ends="s3://", options=options)
