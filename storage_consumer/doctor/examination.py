"""The examination: every look, and what the rules make of it. Looks that do not need each other run side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

from storage_consumer.config.commands import run_command, uri_of
from storage_consumer.config.settings import Config, Secrets
from storage_consumer.doctor.bucket_look import BucketFacts, beside, bucket_look, metadata_look
from storage_consumer.doctor.bucket_rules import BUCKET, METADATA, reachable, transport
from storage_consumer.doctor.checks import CHECKS, GROUPS, group_of
from storage_consumer.doctor.findings import Finding, Outcome, fail, not_looked_at, ok
from storage_consumer.doctor.looks import Facts, Unseen, judged, looked
from storage_consumer.doctor.spark_rules import SPARK
from storage_consumer.doctor.state_look import StateFacts, state_look
from storage_consumer.doctor.state_rules import STATE, bucket, decisions, lease
from storage_consumer.doctor.target_look import table_look, target_look
from storage_consumer.doctor.target_rules import TABLES, TARGET
from storage_consumer.inspection.result import Bucket
from storage_consumer.model import TableName
from storage_consumer.plan.selection import Selection
from storage_consumer.spark.surroundings import surroundings
from storage_consumer.storage.base import Storage
from storage_consumer.storage.open import open_storage

_NO_BUCKET, _NO_TARGET = "--upstream-uri was not given", "--downstream-uri was not given"
_LISTING = 20
"""How many times as long as another look one may take that lists the whole bucket."""
_CLUSTER = 6
"""The same for one that needs executors."""
_OTHERS = "another group was asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """What is examined."""

    config: Config
    secrets: Secrets
    origins: Mapping[str, str]
    """See `Loaded.origins`."""
    environ: Mapping[str, str]
    inspected: Bucket | None = None
    """The bucket as somebody has just inspected it, for the checks of the target; None: it is listed for them."""
    has_bucket: bool = True
    has_target: bool = True
    seconds: float = 30.0
    """How long one look may take; one that lists the bucket has `_LISTING` times as long."""


def examined(patient: Patient, groups: Collection[str] = tuple(GROUPS)) -> tuple[Finding, ...]:
    """Return one finding for each check of these groups, in the order of `CHECKS`."""
    found = {finding.check: finding for finding in _Examination(patient, frozenset(groups)).findings()}
    return tuple(found[name] for name in CHECKS if name in found and group_of(name) in groups)


class _Examination:
    """One examination."""

    def __init__(self, patient: Patient, groups: frozenset[str]) -> None:
        self._patient = patient
        self._groups = groups
        self._config, self._secrets = patient.config, patient.secrets

    def findings(self) -> Iterator[Finding]:
        """Yield all findings."""
        spark = "spark" in self._groups
        with ThreadPoolExecutor(max_workers=2) as side:
            around = side.submit(self._looked, partial(surroundings, self._patient.environ)) if spark else None
            state = self._state()
            facts = self._bucket_facts(state)
            yield from self._of_bucket(facts, state)
            target = tuple(
                self._of_target(self._patient.inspected or (None if isinstance(facts, Unseen) else facts.bucket))
            )
            yield from target
            yield from self._of_state(state, target)
            if around is not None:
                yield from judged(around.result(), SPARK)
        if spark:
            yield Finding("spark-executors", self._executors())

    def _looked(self, look: Callable[[], Facts]) -> Facts | Unseen:
        return looked(look, self._patient.seconds)

    @cached_property
    def _storage(self) -> Storage:
        return open_storage(self._config.upstream, self._secrets)

    @cached_property
    def _selection(self) -> Selection:
        return Selection.of(self._config.selecting, self._config.downstream.state_schema)

    @cached_property
    def _reached(self) -> object | Unseen:
        """The answer of the store to a first question; it is asked once, since one that is silent takes the whole time of a look."""
        return self._looked(self._storage.check)

    def _state(self) -> StateFacts | Unseen:
        """Return the state. Other groups need it too: it says which files are finished."""
        if not self._patient.has_target:
            return Unseen(_NO_TARGET)
        return self._looked(partial(state_look, self._config.downstream, self._secrets.password, time.time()))

    def _bucket_facts(self, state: StateFacts | Unseen) -> BucketFacts | Unseen:
        """Return what the bucket holds. The target's checks need it too: it says which tables there are."""
        if not self._patient.has_bucket:
            return Unseen(_NO_BUCKET)
        wanted = {"bucket"} if self._patient.inspected else {"bucket", "target"}
        if not self._groups & wanted:
            return Unseen(_OTHERS)
        upstream = self._config.upstream
        if isinstance(self._reached, Unseen):
            return self._reached
        known = (
            state if isinstance(state, StateFacts) and state.feed and state.feed.upstream == upstream.identity else None
        )
        origins, there = self._patient.origins, known or StateFacts(schema="", reach=(), now=0)
        look = partial(bucket_look, self._storage, upstream, origins, time.time(), there.finished, there.wanted)
        facts = looked(look, self._patient.seconds * _LISTING)
        checkpoint = known.feed.checkpoint if known and known.feed else 0
        if isinstance(facts, Unseen):
            return facts
        filtered, skipped = self._selection.filter, known.skipped if known else frozenset()
        return beside(facts, checkpoint, lambda name: filtered.leaves_out(name) or name.folded() in skipped)

    def _of_bucket(self, facts: BucketFacts | Unseen, state: StateFacts | Unseen) -> Iterator[Finding]:
        upstream = self._config.upstream
        if not self._patient.has_bucket:
            names = ("bucket-reachable", *METADATA, *BUCKET, "network-bucket")
            yield from (Finding(name, not_looked_at(_NO_BUCKET)) for name in names)
            return
        yield Finding("network-bucket", transport(upstream))
        if "bucket" not in self._groups:
            return
        if isinstance(self._reached, Unseen):
            yield Finding("bucket-reachable", fail(self._reached.why))
            names = (*METADATA, *BUCKET)
            yield from (Finding(name, not_looked_at("bucket-reachable failed")) for name in names)
            return
        yield Finding("bucket-reachable", reachable(upstream.identity))
        opened = partial(open_storage, secrets=self._secrets)
        yield from judged(self._looked(partial(metadata_look, self._storage, upstream, opened, time.time())), METADATA)
        yield from judged(facts, BUCKET)
        if isinstance(state, Unseen) and self._patient.has_target:
            # Without the state nobody knows which files are still needed.
            why = not_looked_at(f"the state was not seen: {state.why}")
            yield from (Finding(name, why) for name in ("bucket-expiry", "bucket-missing-files"))

    def _names(self, inspected: Bucket | None) -> tuple[TableName, ...]:
        """Return the replicated tables, as the target is to have them."""
        if inspected is None:
            return ()
        selection = self._selection
        names = (table.name for table in inspected.tables if table.name is not None)
        return tuple(selection.routes.target(name) for name in names if not selection.filter.leaves_out(name))

    def _of_target(self, inspected: Bucket | None) -> Iterator[Finding]:
        if not self._groups & {"target", "network"}:
            return
        if not self._patient.has_target:
            yield from (Finding(name, not_looked_at(_NO_TARGET)) for name in (*TARGET, *TABLES))
            return
        target, password, names = self._config.downstream, self._secrets.password, self._names(inspected)
        look = partial(
            target_look,
            target,
            password,
            names,
            workers=self._config.tuning.worker_count,
            local_infile=self._config.tuning.local_infile,
            size=inspected.size if inspected else 0,
        )
        server = self._looked(look)
        yield from judged(server, TARGET)
        if isinstance(server, Unseen) or not names:
            why = (
                "target-reachable failed"
                if isinstance(server, Unseen)
                else "the bucket shows no table, or was not looked at"
            )
            yield from (Finding(name, not_looked_at(why)) for name in TABLES)
        else:
            yield from judged(self._looked(partial(table_look, target, password, names)), TABLES)

    def _of_state(self, state: StateFacts | Unseen, target: Sequence[Finding]) -> Iterator[Finding]:
        """Yield what the state says; `target` are the target's findings. A target that does not answer is one fault, not two."""
        why = "" if self._patient.has_target else _NO_TARGET
        if isinstance(state, Unseen) and any(each.fails("target-reachable") for each in target):
            why = "target-reachable failed"
        if why:
            yield from (Finding(name, not_looked_at(why)) for name in STATE)
            return
        known: dict[str, Callable[[StateFacts], Outcome]] = {}
        if self._patient.has_bucket:
            upstream, run = self._config.upstream, run_command(self._config)
            known["state-bucket"] = partial(bucket, upstream=upstream.identity, uri=uri_of(upstream))
            known |= {"state-lease": partial(lease, run=run), "state-decisions": partial(decisions, run=run)}
        yield from judged(state, {**STATE, **known})

    def _executors(self) -> Outcome:
        """Return what executors of a remote master see."""
        patient, tuning = self._patient, self._config.tuning
        master = tuning.spark_master
        if not master or master.startswith("local"):
            return ok("Spark runs on this machine; there are no executors elsewhere")
        from storage_consumer.spark.executor_look import executors_see  # noqa: PLC0415 - PySpark may be missing

        upstream = self._config.upstream if patient.has_bucket else None
        downstream = self._config.downstream if patient.has_target else None
        look = partial(executors_see, tuning, upstream, downstream, self._secrets)
        hosts = looked(look, patient.seconds * _CLUSTER)
        if isinstance(hosts, Unseen):
            remedy = f"See that {master} has free cores, and what the cluster page says executors need: docs/cluster.md"
            return fail(f"{master}: {hosts.why}", remedy)
        return ok(f"executors on {', '.join(hosts)} run our Python, and see what was given of bucket and target")
