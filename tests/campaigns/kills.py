"""``python -m tests.campaigns.kills``: kill -9 of the real command at random instants, JVM and workers included, again and again.

Each *story* is a recorded bucket delivered in another way (see `shuffling`), cut by cut, while the command runs, is killed and is
started again; then one more run ends it, and the target must equal the source: nothing lost, nothing doubled. The server's general
log must show no statement of the journal more often than the journal allows (TiDB has none: its list of DDL jobs takes its place).

The seed says which story comes next, how it is delivered and when what is killed. Exit code 0 when every story ends equal, 1 when
one does not, 2 when no corpus matches what was asked for. Two at a time, on servers of their own, use two cores better than one.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path

from storage_consumer.summary import RoundSummary, TableSummary
from tests.harness.choosing import asked_for, offer
from tests.harness.class_archive import use_class_archive
from tests.harness.corpora import CorpusSource, write_at_once
from tests.harness.program import Program, program
from tests.harness.replay import NotEqual, Replay
from tests.harness.servers import SERVERS, DatabaseServer, learn_zone
from tests.harness.shuffling import Placed, Shuffled
from tests.harness.stopping import general_log, logged

WORKLOADS = "shop,keys,keyless,ddl_storm,databases,names,generated,hot,late_dups,views,gap"
"""Without `partitions`: whether an interrupted EXCHANGE took effect is for an operator to say; see `stop_everywhere`."""
VARIANTS = "csv,csv-small,csv-restart,json,json-restart,nodes-csv"
KILLS = 10
"""Of each story."""
LONGEST = 4.0
"""Seconds after Spark's start within which most kills come: about as long as a round takes."""
SOONER = 0.2
"""Share of the kills that come before Spark has started."""
REPEATABLE = ("TRUNCATE",)
"""Statements whose effect does not show in the structure: one that was interrupted runs again, before any later row."""


@dataclass(slots=True, kw_only=True)
class Done:
    """What all stories together were."""

    stories: int = 0
    kills: int = 0
    restarts: int = 0
    rows: int = 0
    """Of the delivered files, repeated ones included."""
    statements: int = 0
    """In the journals."""

    def __str__(self) -> str:
        """One line."""
        return ", ".join(f"{getattr(self, f.name)} {f.name}" for f in fields(self))


@dataclass(slots=True, kw_only=True)
class Story:
    """One bucket, its processes and their ends."""

    replay: Replay
    dice: random.Random
    done: Done

    def __call__(self) -> None:
        """From the first cut to the last. Raises `NotEqual`."""
        shuffle = Shuffled(corpus=self.replay.corpus, dice=self.dice)
        objects, server = shuffle.objects(), self.replay.server
        with general_log(server):
            before = arrived(server)
            self._kill_all_along(objects)
            summary = self._finish()
            again = twice(server, arrived(server) - before)
        self.replay.check(self.replay.corpus.cuts[-1], summary)
        if again:
            raise NotEqual(f"{self.replay.corpus}: took effect more than once: {again}")
        self.done.stories += 1
        self.done.rows += shuffle.counts.rows

    def _kill_all_along(self, objects: Sequence[Placed]) -> None:
        """Show one cut after another, some while the command runs."""
        cuts = list(self.replay.corpus.cuts)
        at = sorted(self.dice.randrange(KILLS) for _ in cuts[1:])
        for kill in range(KILLS):
            due = [cuts[0]] if kill == 0 else []
            due += [cut for cut, when in zip(cuts[1:], at, strict=True) if when == kill]
            early = len(due) if kill == 0 or self.dice.random() < 0.5 else 0
            for cut in due[:early]:
                self._show(objects, cut.number)
            shuffled = self.dice.choice(((), ("--partitions", "3")))
            with self._program("--flush-interval", "200ms", *shuffled) as running:
                instant = self._wait(running)
                for cut in due[early:]:
                    time.sleep(instant / (len(due) + 1))
                    self._show(objects, cut.number)
                time.sleep(instant / (len(due) - early + 1))
                running.kill()
            self.done.kills += 1

    def _show(self, objects: Sequence[Placed], number: int) -> None:
        """What can be listed from a cut on, and its checkpoint."""
        for one in (one for one in objects if one.cut == number):
            write_at_once(self.replay.bucket / one.path, one.content)
        self.replay.corpus.set_checkpoint(self.replay.bucket, self.replay.corpus.cuts[number])

    def _wait(self, running: Program) -> float:
        """Until Spark has started, or not; for how many seconds the process may live from then on."""
        if self.dice.random() < SOONER:
            return self.dice.uniform(0.0, LONGEST)
        running.wait_for("spark_started")
        return self.dice.uniform(0.0, LONGEST)

    def _program(self, *more: str) -> AbstractContextManager[Program]:
        corpus, folder = self.replay.corpus, self.replay.folder
        config = corpus.write_config(folder)
        self.done.restarts += 1
        where = ["--upstream-uri", corpus.sink_uri(self.replay.bucket), "--downstream-uri", self.replay.server.uri]
        log = folder / f"log-{self.done.restarts}"
        return program([*where, "--config", str(config), "--tz", corpus.timezone, *more], log)

    def _finish(self) -> RoundSummary:
        """One run to the end, and another one that must find nothing to do; what they said of tables that stopped."""
        for again in (False, True):
            with self._program("--once") as running:
                running.end()
                halted = {event["table"]: event["error"] for event in running.events("table_halted")}
                rounds = running.events("round_finished")
            if not rounds or (again and (rounds[-1]["written"] or rounds[-1]["ddls"])):
                raise NotEqual(f"{self.replay.corpus}: the last run said {rounds or running.text()[-2000:]}")
        tables = [TableSummary(table=table, state="halted", error=error) for table, error in halted.items()]
        self.done.statements += len(self.replay.server.query("SELECT 1 FROM storage_consumer.ddl_journal"))
        return RoundSummary(tables=tuple(tables))


def arrived(server: DatabaseServer) -> Counter[str]:
    """Text of a statement → how often a TiDB ran it since its start, or another server got it since its general log is on."""
    if server.kind == "tidb":
        jobs = server.query(
            "SELECT DISTINCT job_id, query FROM information_schema.ddl_jobs"
        )  # a job's parts are rows too
        return Counter(text for _, text in jobs)
    return logged(server)


def twice(server: DatabaseServer, came: Counter[str]) -> dict[str, int]:
    """Statements of the journal that came more often than the journal has them. `came`: text → how often it came."""
    journal = Counter(text for (text,) in server.query("SELECT statement FROM storage_consumer.ddl_journal"))
    return {
        text: came[text] for text, times in journal.items() if came[text] > times and not text.startswith(REPEATABLE)
    }


def one_story(seed: int, corpora: Sequence[CorpusSource], server: DatabaseServer, folder: Path, done: Done) -> None:
    """The story that a seed tells."""
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    corpus = dice.choice(corpora).open(folder)
    replay = Replay(corpus=corpus, server=server, folder=folder / "story")
    server.drop_all()
    learn_zone(server, "+00:00" if corpus.timezone == "UTC" else corpus.timezone)
    replay.folder.mkdir(parents=True)
    try:
        Story(replay=replay, dice=dice, done=done)()
    except Exception as error:
        error.add_note(f"{corpus} with seed {seed}")
        raise
    finally:
        shutil.rmtree(replay.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit code."""
    asked = _parser().parse_args(arguments)
    corpora = asked_for(asked)
    if not corpora:
        return 2
    done, failed, began, seed = Done(), list[int](), time.monotonic(), asked.seed
    with tempfile.TemporaryDirectory(prefix="kills-") as name, SERVERS[asked.server]() as server:
        print(f"{server.name} {server.version}, {len(corpora)} corpora", flush=True)
        use_class_archive()
        while done.kills < asked.kills:
            try:
                one_story(seed, corpora, server, Path(name), done)
            except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
                failed.append(seed)
                print("\n".join([f"{type(error).__name__}: {error}", *error.__notes__]), flush=True)
            print(f"seed {seed}, {time.monotonic() - began:.0f} s: {done}", flush=True)
            seed += 1
    print(f"{done}; seeds {asked.seed} to {seed - 1}; {len(failed)} that differ {failed or ''}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.kills", description="Kill the command at random.")
    parser.add_argument("--kills", type=int, default=1_000, help="at least; a story is brought to its end")
    parser.add_argument("--seed", type=int, default=0, help="of the first story; each next one has the next")
    offer(parser, workloads=WORKLOADS, variants=VARIANTS)
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    return parser


if __name__ == "__main__":
    sys.exit(main())
