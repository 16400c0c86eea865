"""Who may write: the lease over twins and a clock that stands still."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from storage_consumer.clock import Clock
from storage_consumer.driver.lease import Renewal, _place, identity, process_is_gone, readable
from storage_consumer.errors import (
    ConfigError,
    LeaseHeld,
    LeaseLost,
    StateGone,
    StorageConsumerError,
    TargetUnavailable,
)
from storage_consumer.summary import RoundSummary
from tests.harness.small_bucket import ts
from tests.harness.twins.state import MemoryState
from tests.harness.waiting import wait_until
from tests.unit.driving import World, one_table, running

TTL = 30.0
OURS, THEIRS = True, False  # what a renewal answers
AWAY = TargetUnavailable("away")


@pytest.fixture
def world() -> World:
    """One table with one row up to tick 3."""
    return one_table()


def test_lease_lost_ends(world: World) -> None:
    """A writer whose lease is another's ends, and leaves the other's lease and state alone."""

    def tick(call: str) -> None:
        if call == "before MemoryPipeline.run":
            world.clock.advance(TTL + 1)
            other = MemoryState(world.records, world.clock)
            assert other.lease.acquire("the other", TTL) == ""
            other.lease.open_window(1, 0)

    world.tick = tick
    with pytest.raises(LeaseLost):
        world.once()
    assert world.records.holder == "the other"
    assert world.rows("shop.a") == []


def test_a_statement_after_the_lease_is_lost_touches_nothing_of_the_next_owner(world: World) -> None:
    """Not even the note of the keys that the next owner's statement left: without it nobody would see that somebody changes them."""
    called: list[str] = []

    def tick(call: str) -> None:
        called.append(call)
        if call == "before DdlRunner.run":
            world.clock.advance(TTL + 1)
            assert MemoryState(world.records, world.clock).lease.acquire("the other", TTL) == ""

    world.tick = tick
    with pytest.raises(LeaseLost):
        world.once()
    assert "before MemoryTarget.forget" not in called
    assert "before MemoryTarget.execute_ddl" not in called


def test_renewal_that_finds_the_lease_gone_ends_the_round(world: World) -> None:
    """Once the renewal was refused no further step begins."""
    service = world.service()

    def tick(call: str) -> None:
        if call == "before DdlRunner.run":
            assert service._renewal is not None
            service._renewal.lost.set()

    world.tick = tick
    with pytest.raises(LeaseLost, match="lost to another process"):
        service.run_once(world.stop)
    service.close()
    assert len(world.records.effects) == 1


def test_once_waits_for_a_dead_holder_only(world: World) -> None:
    """One round waits until a holder that died would have lost the lease; one that lives on is named."""
    other = MemoryState(world.records, world.clock)
    other.lease.acquire("host|other", TTL)
    assert world.once().checkpoint == ts(3)

    other.lease.acquire("host|other", 10_000)
    with pytest.raises(LeaseHeld, match=r"another process writes to this target: host\|other\. Stop it .*--standby$"):
        world.once()


def test_run_stands_by(world: World) -> None:
    """A continuous run waits for the lease for as long as it takes."""
    MemoryState(world.records, world.clock).lease.acquire("host|other", 10_000)

    def act(rounds: int) -> None:
        if world.records.checkpoint:
            world.stop.requested.set()

    assert running(world, act).checkpoint == ts(3)
    assert world.clock.monotonic() > 10_000


@pytest.mark.parametrize("once", [True, False])
def test_standing_by_can_be_chosen(*, once: bool) -> None:
    """With ``standby`` one round waits for the lease as well; without it a continuous run ends as one round does."""
    patient, hasty = one_table(standby=True), one_table(standby=False)
    for world in (patient, hasty):
        MemoryState(world.records, world.clock).lease.acquire("host|other", 10_000)

    def act(rounds: int) -> None:
        if patient.records.checkpoint:
            patient.stop.requested.set()

    summary = patient.once() if once else running(patient, act)
    assert summary.checkpoint == ts(3)
    with pytest.raises(LeaseHeld, match=r"another process writes to this target: host\|other\."):
        hasty.once() if once else running(hasty, act)
    assert hasty.clock.monotonic() < 100


def test_another_bucket_while_standing_by(world: World) -> None:
    """Whoever has waited for the lease finds a state that was made anew, or bound, for another bucket: it ends and writes nothing."""
    other = MemoryState(world.records, world.clock)
    other.lease.acquire("host|other", 10_000)

    def act(rounds: int) -> None:
        if rounds == 3:
            world.records.upstream = "file:///another"
            other.lease.release()
        assert rounds < 10

    with pytest.raises(ConfigError, match="the state belongs to the bucket file:///another, not to file:///bucket"):
        running(world, act)
    assert (world.records.holder, world.records.tables, world.records.checkpoint) == ("", {}, 0)


def test_stop_while_standing_by(world: World) -> None:
    """Told to stop, a process that stands by ends without a word to the state."""
    MemoryState(world.records, world.clock).lease.acquire("host|other", 10_000)

    assert running(world, rounds=3) == RoundSummary()
    assert world.records.holder == "host|other"


def test_lease_is_given_back(world: World) -> None:
    """After a clean end the next process need not wait; closing again does nothing."""
    service = world.service()
    service.run_once(world.stop)
    assert world.records.holder
    service.close()
    service.close()
    assert world.records.holder == ""


def test_holder_on_this_machine_that_is_gone(world: World) -> None:
    """A holder that was a process of this machine and runs no more is followed immediately."""
    for since in ("", "|2026-01-31T10:00:00Z"):
        gone = f"{socket.gethostname()}|{_place()}|{2**22 + 1}|0{since}"
        MemoryState(world.records, world.clock).lease.acquire(gone, 10_000)
        assert process_is_gone(gone)
        world.once()
        assert world.clock.waits == []


@pytest.mark.parametrize(
    "holder", ["", "a", "a|b|c", "elsewhere|x|99999999|1", pytest.param(identity(0), id="this process")]
)
def test_holder_that_may_live(holder: str) -> None:
    """Nothing is known of holders elsewhere, of other forms of names, and of this very process."""
    assert not process_is_gone(holder)


def test_holder_that_another_user_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives, although we may not signal it and /proc may not show it (hidepid)."""

    def kill(number: int, signal: int) -> None:
        assert (number, signal) == (2**22 + 1, 0)
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not process_is_gone(f"{socket.gethostname()}|{_place()}|{2**22 + 1}|0")


def test_holders_differ() -> None:
    """Two services of one process are two holders."""
    assert identity(0) != identity(0)
    assert f"|{os.getpid()}|" in identity(0)


def test_holders_are_named_readably(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits, or gives up, learns host, process and time of the one it waits for; also of one of an older version."""
    assert readable("db1|boot-pid:[4026531836]|4711|0a1b|2026-01-31T10:00:00Z") == (
        "host db1, pid 4711, since 2026-01-31T10:00:00Z"
    )
    assert readable("db1|boot-pid:[4026531836]|4711|0a1b") == "host db1, pid 4711"
    assert (
        readable(identity(1_769_853_600.5))
        == f"host {socket.gethostname()}, pid {os.getpid()}, since 2026-01-31T10:00:00Z"
    )
    MemoryState(world.records, world.clock).lease.acquire("db1|place|4711|0a1b|2026-01-31T10:00:00Z", 10_000)
    with pytest.raises(LeaseHeld, match="this target: host db1, pid 4711, since 2026-01-31T10:00:00Z"):
        world.once()
    assert 'lease_waiting holder="host db1, pid 4711, since 2026-01-31T10:00:00Z"' in caplog.text


class Script:
    """A state whose renewals go as listed; the last one ends the test."""

    epoch = 1

    def __init__(self, *answers: bool | Exception) -> None:
        """One answer per renewal."""
        self.answers = list(answers)
        self.given = 0
        """How many answers were given."""
        self.done = threading.Event()

    def renew(self, _: float) -> bool:
        """The next answer."""
        answer = self.answers.pop(0)
        self.given += 1
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Ticking:
    """A clock on which a wait is over immediately, until the script has come to its end."""

    def __init__(self, script: Script) -> None:
        """For one script."""
        self._script = script
        self._asked = 0

    def wait(self, event: threading.Event, _: float) -> bool:
        """Go on while there are answers."""
        return event.wait() if self._script.done.is_set() else event.is_set()

    def monotonic(self) -> float:
        """A third of the lease's time for each answer."""
        return self._script.given * TTL / 3

    def now(self) -> float:
        """Some time, which goes on with each question."""
        self._asked += 1
        return 1_700_000_000.0 + self._asked


def test_a_renewal_that_fails_says_since_when(caplog: pytest.LogCaptureFixture) -> None:
    """Each line about an outage has the time of its first failure; the next outage has its own."""
    assert not _renewed(OURS, AWAY, AWAY, OURS, AWAY, OURS)
    said = [message for message in caplog.messages if message.startswith("retry ")]
    assert [message.split(" since=")[1].split()[0] for message in said] == [
        "2023-11-14T22:13:21.000Z",
        "2023-11-14T22:13:21.000Z",
        "2023-11-14T22:13:22.000Z",
    ]


def _renewed(*answers: bool | Exception) -> bool:
    """Whether the lease counts as lost after these answers."""
    script = Script(*answers)
    clock: Clock = Ticking(script)
    renewal = Renewal(script, TTL, clock)  # type: ignore[arg-type] # only renewals are asked of it
    assert script.done.wait(5)
    lost = renewal.lost.wait(0.2)
    renewal.stop()
    return lost


def test_renewal_over_an_outage() -> None:
    """However long the target is away, a lease that can be renewed afterwards is still ours."""
    away = [AWAY] * 200
    assert not _renewed(OURS, *away, OURS)
    assert _renewed(OURS, *away, THEIRS)


@pytest.mark.parametrize(("last", "has_run_out"), [((OURS, AWAY, AWAY, AWAY), True), ((AWAY, AWAY, AWAY, OURS), False)])
def test_a_lease_that_is_not_renewed_in_time_has_run_out(
    last: tuple[bool | Exception, ...], *, has_run_out: bool
) -> None:
    """It is not lost, for it can still be renewed; but as long as it is not, nobody has it, as the state says too."""
    script = Script(OURS, *last)
    clock: Clock = Ticking(script)
    renewal = Renewal(script, TTL, clock)  # type: ignore[arg-type] # only renewals are asked of it
    assert script.done.wait(5)
    wait_until("an end of the renewals", lambda: renewal.has_run_out is has_run_out, 5)
    assert not renewal.lost.is_set()
    renewal.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_renewal_that_breaks() -> None:
    """A renewal that ends by an error nobody expected does not end unnoticed."""
    assert _renewed(OURS, ValueError("nobody expected this"))


@pytest.mark.parametrize("fault", [ConfigError("the password was changed"), StateGone("dropped")])
def test_renewal_that_cannot_be(fault: StorageConsumerError) -> None:
    """What keeps the lease from being renewed for good ends no thread with a traceback: the round raises it."""
    script = Script(OURS, fault)
    clock: Clock = Ticking(script)
    renewal = Renewal(script, TTL, clock)  # type: ignore[arg-type] # only renewals are asked of it
    assert renewal.lost.wait(5)
    renewal.stop()
    assert renewal.fault is fault


def test_outage_longer_than_the_lease(world: World) -> None:
    """A target that is away for longer than the lease's time, but not than the limit, is waited for."""

    def tick(call: str) -> None:
        if world.clock.monotonic() < 4 * TTL and call.startswith("before MemoryProgress.load"):
            raise TargetUnavailable("away")

    world.tick = tick
    assert world.once().checkpoint == ts(3)
    assert world.clock.monotonic() >= 4 * TTL
