"""Every rule of conf/prometheus/alerts.yml, in a real Prometheus: fired by a real fault, and ended by its cure.

Meanwhile status, page, JSON, metrics and probe are looked at twice a second and say the same (`agreeing`).
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP, Signals

import pymysql
import pytest

from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.following import arguments
from tests.acceptance.situations.test_outages import small_disk
from tests.acceptance.situations.test_stopped_tables import ADD_COLUMN, WIDER
from tests.acceptance.situations.watching import Watch, steps, typed
from tests.harness import servers
from tests.harness.hook_server import HookServer, hook_server
from tests.harness.program import Program, program
from tests.harness.prometheus import NAMES, Alerts, prometheus
from tests.harness.servers import DatabaseServer, free_port
from tests.harness.small_bucket import SmallBucket
from tests.harness.waiting import wait_until

pytestmark = [
    *(pytest.mark.server, pytest.mark.spark, pytest.mark.acceptance, pytest.mark.timeout(900)),
    # Mounts a disk.
    pytest.mark.root,
]
TABLES = ("orders", "items", "stock")
TIMES = 60
"""How much faster Prometheus' time goes: what a rule waits for 30 minutes for, it waits 30 s for."""
LONG_AGO = 13 * 3600.0
"""Seconds; more than half of the day after which TiCDC deletes files here."""
WORDS = {
    "StorageConsumerNoWriter": {"no-writer"},
    "StorageConsumerDown": {"no-writer"},
    "StorageConsumerTableHalted": {"stopped"},
    "StorageConsumerRowsQuarantined": {"unequal"},
    "StorageConsumerTableDiffers": {"unequal", "stopped"},
    "StorageConsumerClockSkew": {"clock-skew"},
    "StorageConsumerRetrying": {"retrying", "no-writer"},
}
"""The alerts that name what a word of the status names, and in which words they may fire."""
SLACK = 24.0
"""Seconds after the beginning of a look in which the alerts of its word may still fire: a machine that is gone is waited for."""
GRANTS = (
    "GRANT ALL ON `shop`.* TO app",
    "GRANT ALL ON `storage\\_consumer`.* TO app",
    # Shows who holds a lock.
    "GRANT PROCESS ON *.* TO app",
)


_BACK = 1.5
"""Seconds that the checkpoint lies back: what has an earlier TSO is in the bucket by then."""


def now(ahead: float = 0.0) -> int:
    """The TSO of now."""
    return int((time.time() + ahead) * 1000) << 18


@dataclass(slots=True)
class Ticking:
    """A changefeed that moves its checkpoint each second, with the time of a clock that may be wrong."""

    feed: Feed
    ahead: float = 0.0
    """Seconds by which the source's clock is."""
    stands: bool = True
    _ends: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Tick until `end`."""
        while not self._ends.wait(0.5):
            if not self.stands:
                self.feed.says(now(self.ahead - _BACK))

    def end(self) -> None:
        """Stop."""
        self._ends.set()


@dataclass(slots=True)
class Scene:
    """One feed with everything around it."""

    watch: Watch
    target: DatabaseServer
    source: DatabaseServer
    """Has the rows that the changefeed tells of."""
    alerts: Alerts
    ticking: Ticking
    disk: Path
    hook: HookServer
    numbers: dict[str, int] = field(default_factory=dict)
    """Table → number of its last file."""

    @property
    def feed(self) -> Feed:
        """What the changefeed writes."""
        return self.watch.feed

    def write(self, table: str, *rows: tuple[int, str]) -> None:
        """Write rows to the source, which its changefeed tells of."""
        self.source.query(f"REPLACE INTO shop.{table} VALUES " + ", ".join(map(str, rows)))
        self.put(table, *(f'{key},"{name}"' for key, name in rows))

    def put(self, table: str, *rows: str) -> None:
        """Write a file."""
        number = self.numbers[table] = self.numbers.get(table, 0) + 1
        self.feed.rows(f"shop.{table}", number, *rows, at=now())

    def raised(self, *names: str, word: str = "") -> None:
        """Wait until alerts fire, and the status has a word."""
        wanted = {f"StorageConsumer{name}" for name in names}
        wait_until(f"{wanted}, while {self.alerts.firing} fire", lambda: wanted <= self.alerts.firing)
        if word:
            wait_until(f"status {word}", lambda: self.watch.status().text.startswith(f"{word}:"))

    def cleared(self, *but: str) -> None:
        """Wait until the feed is healthy and no alert fires, but for these."""
        wait_until("a healthy feed", self.watch.is_healthy)
        left = {f"StorageConsumer{name}" for name in but}
        wait_until(f"an end of alerts but {left}", lambda: self.alerts.firing <= left)

    def steps(self, *needed: str) -> list[str]:
        """The commands that the status names, of which one has these texts."""
        text = self.watch.once(lambda: self.watch.status().text, "  next: ", *needed)
        return steps(text)

    def type(self, line: str) -> None:
        """Type a command, which has to end well."""
        done = typed(line)
        assert done.code == 0, done


@contextmanager
def scene_of(folder: Path, source: DatabaseServer, book: Book) -> Iterator[Scene]:
    """A feed that stood still for 13 hours, on a target with a small disk."""
    innodb = ("--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--innodb-doublewrite=0")
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", "200M"))
        target = stack.enter_context(servers.mariadb(folder=disk, innodb=innodb, options=["--max-connections=60"]))
        target.query("CREATE USER app, report")
        for grant in GRANTS:
            target.query(grant)
        source.query("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        feed = Feed(SmallBucket(root=folder / "bucket"))
        feed.create(*(f"shop.{name}" for name in TABLES), ago=LONG_AGO)
        for name in TABLES:
            source.query(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, name VARCHAR(20))")
            source.query(f"INSERT INTO shop.{name} VALUES (1, 'one')")
            feed.rows(f"shop.{name}", 1, '1,"one"', at=feed.now(LONG_AGO - 1))
        feed.bucket.metadata(feed.now(LONG_AGO - 2))
        (folder / "changefeed.toml").write_text(
            "[sink.csv]\ninclude-commit-ts = true\n[sink.cloud-storage-config]\nfile-expiration-days = 1\n",
            encoding="utf-8",
        )
        ticking, hook = Ticking(feed), stack.enter_context(hook_server())
        threading.Thread(target=ticking.run, name="changefeed", daemon=True).start()
        stack.callback(ticking.end)
        watch = Watch(feed=feed, uri=target.uri.replace("root@", "app@"), book=book)
        port = free_port()
        watch.port = port
        alerts = stack.enter_context(prometheus(folder, [port], TIMES))
        numbers = dict.fromkeys(TABLES, 1)
        yield Scene(watch, target, source, alerts, ticking, disk, hook, numbers)


def words_of(scene: Scene, folder: Path) -> list[str]:
    """What the program is started with."""
    words = arguments(scene.watch)
    words.remove("--include-commit-ts")
    words[words.index("127.0.0.1:0")] = f"127.0.0.1:{scene.watch.port}"
    return [
        *(*words, "--config", str(folder / "changefeed.toml"), "--quarantine", "shop.items"),
        *("--on-halt", scene.hook.command(), "--retry-limit", "10m"),
    ]


@contextmanager
def started(scene: Scene, log: Path) -> Iterator[Program]:
    """The program, which is looked at once it has the lease: that of a process that was killed is in the state for a while."""
    with program(words_of(scene, log.parent), log) as running:
        running.wait_for("lease_acquired")
        scene.watch.running = running
        yield running


def test_every_alert(mariadb: DatabaseServer, book: Book, tmp_path: Path) -> None:
    """Each fault raises its alerts while everything else says its word, and the cure that is named ends both; at last the target is equal."""
    with scene_of(tmp_path, mariadb, book) as scene:
        with started(scene, tmp_path / "first") as running:
            running.wait_for("round_finished", checkpoint=scene.feed.marks[-1])
            for make in FAULTS:
                print(time.strftime("%H:%M:%S"), make.__name__, flush=True)
                make(scene)
            halts = [(each["event"], each.get("table")) for each in scene.hook.got]
        scene.watch.running = None
        restarted_again_and_again(scene, tmp_path)
        with started(scene, tmp_path / "last"):
            for make in LAST_FAULTS:
                print(time.strftime("%H:%M:%S"), make.__name__, flush=True)
                make(scene)
            verified = typed(verify_line(scene))
            assert verified.code == 0, verified.text
        fired = scene.alerts.end()
        scene.watch.witness.end()
    assert {name for name, _, _ in fired} == set(NAMES)
    assert not list(out_of_place(scene, fired))
    pairs = [(event, table) for table in ("shop.orders", "shop.orders") for event in ("table_halted", "table_resumed")]
    assert [each for each in halts if each[1] == "shop.orders"] == pairs


def out_of_place(scene: Scene, fired: list[tuple[str, float, float]]) -> Iterator[str]:
    """Yield the alerts that fired while the feed was in none of their words, as far as somebody looked."""
    glances = scene.watch.witness.glances
    seen = [each for each in fired if any(each[1] <= glance.began <= each[2] for glance in glances)]
    for name, first, last in seen:
        around = {each.process for each in glances if first - SLACK <= each.began <= last}
        # A process that has ended no round says none.
        words = {*WORDS.get(name, around), ""}
        if not words & around:
            yield f"{name} while the metrics said {around}"
        ended = max((each.began for each in glances if each.process in words and each.began <= last), default=last)
        if name in WORDS and last - ended > SLACK:
            yield f"{name} for {last - ended:.0f} s after the last of {words}"


def verify_line(scene: Scene) -> str:
    """The command that compares the target with the source."""
    return f"storage-consumer verify --frozen --source {scene.source.uri} --table 'shop.*' --downstream-uri {scene.watch.uri}"


# the faults


def source_that_stands_and_a_table_that_is_forgotten(scene: Scene) -> None:
    """The changefeed stands for half a day; meanwhile a table is paused, whose files come and come; and Spark does not move."""
    scene.raised("SourceStalled", "FilesAboutToExpire")
    resume = f"storage-consumer table resume --table shop.stock --downstream-uri {scene.watch.uri}"
    scene.type(resume.replace(" resume ", " pause "))
    scene.ticking.stands = False
    more = [(number, "more") for number in range(2, 1102)]
    scene.source.query(f"INSERT INTO shop.stock VALUES {str(more)[1:-1]}")
    for key, name in more:
        scene.put("stock", f'{key},"{name}"')
    assert scene.watch.running is not None
    scene.watch.running.wait_for("round_finished", paused=["shop.stock"])
    wait_until("an end of the stall", lambda: scene.alerts.firing == {"StorageConsumerFilesAboutToExpire"})
    wait_until("files that wait", lambda: "storage_consumer_pending_files 1100" in scene.watch.scraped())
    java(scene, SIGSTOP)
    try:
        scene.write("orders", (2, "two"))
        scene.raised("PendingFilesGrow", "Stuck", "FilesAboutToExpire", "Lag", word="stopped")
    finally:
        java(scene, SIGCONT)
    scene.type(next(each for each in scene.steps("shop.stock") if " resume " in each))
    scene.cleared()


def java(scene: Scene, number: Signals) -> None:
    """Send a signal to Spark's JVM."""
    assert scene.watch.running is not None
    scene.watch.running.signal_all(number, "java")


def read_only_target(scene: Scene) -> None:
    """Nobody can have the lease."""
    scene.target.query("SET GLOBAL read_only = ON")
    scene.write("orders", (3, "three"))
    scene.raised("NoWriter", "Retrying", word="no-writer")
    scene.target.query("SET GLOBAL read_only = OFF")
    scene.cleared()


def full_disk(scene: Scene) -> None:
    """Nothing has room."""
    ballast = scene.disk / "ballast"
    with ballast.open("wb") as file:
        file.write(b"x" * shutil.disk_usage(scene.disk).free)
    scene.write("orders", *((number, "x" * 20) for number in range(100, 2_000)))
    scene.raised("Retrying", word="retrying")
    ballast.unlink()
    scene.cleared()


def others_connect(scene: Scene, stack: ExitStack) -> None:
    """Take all connections that there are."""
    with suppress(pymysql.err.OperationalError):
        while True:
            stack.enter_context(scene.target.connect(user="report"))


def used_up_connections(scene: Scene) -> None:
    """Others hold all connections, also those that the program had; even `status` gets none."""
    with ExitStack() as stack, scene.target.connect() as own, own.cursor() as cursor:
        while cursor.execute("SELECT 1 FROM information_schema.processlist WHERE user = 'app'"):
            cursor.execute("KILL USER app")
            others_connect(scene, stack)
        scene.write("orders", (4, "four"))
        scene.raised("Retrying")
        assert scene.watch.status().code == 1
    scene.cleared()


def revoked_right(scene: Scene) -> None:
    """The account may not insert any more; the message has the GRANT."""
    scene.target.query("REVOKE INSERT ON `shop`.* FROM app")
    scene.write("orders", (5, "five"))
    scene.raised("TableHalted", word="stopped")
    (grant,) = set(re.findall(r"GRANT .*? TO '?app'?@'%'", " ".join(scene.watch.status().text.split())))
    scene.target.query(grant)
    scene.type(scene.steps("shop.orders")[0])
    scene.cleared()


def refused_row(scene: Scene) -> None:
    """The target has a CHECK that the source lacks."""
    scene.target.query("ALTER TABLE shop.orders ADD CONSTRAINT not_six CHECK (id <> 6)")
    scene.write("orders", (6, "six"))
    scene.raised("TableHalted", word="stopped")
    scene.target.query("ALTER TABLE shop.orders DROP CONSTRAINT not_six")
    scene.type(scene.steps("shop.orders")[0])
    scene.cleared()


def quarantined_row(scene: Scene) -> None:
    """The same where the table goes on without the row."""
    scene.target.query("ALTER TABLE shop.items ADD CONSTRAINT not_two CHECK (id <> 2)")
    scene.write("items", (2, "two"))
    scene.raised("RowsQuarantined", word="unequal")
    scene.target.query("ALTER TABLE shop.items DROP CONSTRAINT not_two")
    scene.type(next(each for each in scene.steps("shop.items") if "quarantine retry" in each))
    scene.cleared()


def row_that_somebody_deleted(scene: Scene) -> None:
    """`verify` finds it, and what verify names heals it."""
    scene.target.query("DELETE FROM shop.stock WHERE id = 1")
    assert typed(verify_line(scene)).code == 4
    scene.raised("TableDiffers", word="unequal")
    named = scene.steps("table pause --table shop.stock")
    scene.type(next(each for each in named if "table pause" in each))
    assert scene.watch.running is not None
    scene.watch.running.wait_for("decision_obeyed", table="shop.stock", verb="pause")
    scene.target.query("REPLACE INTO shop.stock VALUES (1, 'one')")
    done = re.search(r"storage-consumer table reload-done .*? --downstream-uri \S+", typed(verify_line(scene)).text)
    line = (
        done[0]
        if done
        else f"storage-consumer table reload-done --table shop.stock --at TSO --downstream-uri {scene.watch.uri}"
    )
    scene.type(line.replace(" TSO ", f" {now()} "))
    scene.cleared()


def statement_that_waits(scene: Scene) -> None:
    """Somebody's open transaction has read the table that a statement alters."""
    with scene.target.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.items LIMIT 1")
        alter = "ALTER TABLE `items` ADD COLUMN `note` VARCHAR(20)"
        scene.feed.bucket.schema("shop.items", now(), alter, ADD_COLUMN, WIDER)
        scene.source.query("ALTER TABLE shop.items ADD COLUMN note VARCHAR(20)")
        scene.raised("TableWaiting", "Lag", word="healthy")
        (kill,) = scene.steps("KILL ")
        scene.target.query(kill)
        scene.cleared()


def clock_of_the_day_after_tomorrow(scene: Scene) -> None:
    """The source's clock is wrong by so much that its checkpoint is not believed."""
    scene.ticking.ahead = 2 * 86400.0
    scene.raised("ClockSkew", word="clock-skew")
    scene.ticking.ahead = 0.0
    scene.cleared()


def clock_that_is_a_minute_ahead(scene: Scene) -> None:
    """It is believed, and time passes."""
    scene.ticking.ahead = 75.0
    scene.raised("ClockSkew", word="clock-skew")
    scene.ticking.ahead = 0.0
    scene.cleared()


def restarted_again_and_again(scene: Scene, folder: Path) -> None:
    """The program is killed once Prometheus has seen it with the lease, twice more."""
    for number in range(2):
        with program(words_of(scene, folder), folder / f"again{number}") as running:
            running.wait_for("lease_acquired")
            time.sleep(5)  # it is scraped each second, and the rule looks every other one


def machine_that_is_gone(scene: Scene) -> None:
    """The third start stays; then its machine does not answer, until it is back."""
    assert scene.watch.running is not None
    scene.raised("LeaseFlapping")
    scene.watch.running.wait_for("round_finished")
    scene.cleared("LeaseFlapping")
    scene.watch.running.signal_all(SIGSTOP)
    try:
        scene.raised("Down", "NoWriter", word="no-writer")
    finally:
        scene.watch.running.signal_all(SIGCONT)
    scene.cleared()


FAULTS = (
    *(source_that_stands_and_a_table_that_is_forgotten, read_only_target, full_disk, used_up_connections),
    *(revoked_right, refused_row, quarantined_row, row_that_somebody_deleted, statement_that_waits),
    clock_of_the_day_after_tomorrow,
)
LAST_FAULTS = (machine_that_is_gone, clock_that_is_a_minute_ahead)
