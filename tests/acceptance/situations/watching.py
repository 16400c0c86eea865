"""What an operator sees of a situation: status, metrics, page, log and alerts, as the pages have them."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from storage_consumer.clock import data_size
from tests.acceptance.situations.agreeing import Witness
from tests.acceptance.situations.book import Book
from tests.acceptance.situations.feed import Feed
from tests.acceptance.situations.normal import normal, wrapped
from tests.harness.program import ROOT, Program
from tests.harness.waiting import wait_until
from tests.integration.test_promtool import promtool

TARGET = "mysql://app@db.example.com:3306/"
BUCKET = "s3://bucket/prefix"
_TELLING = (
    *("writer", "retrying_seconds", "lag_seconds", "running_lag_seconds"),
    *("source_lag_seconds", "pending_files", "tables", "tables_waiting", "table_halts_total"),
    *("table_halted", "table_quarantined_rows", "statements_running", "statement_seconds"),
)
"""The metrics from which a situation can be told."""
_AGES = ("lag_seconds", "running_lag_seconds", "retrying_seconds", "statement_seconds")
"""Those that grow by a second per second while a situation lasts."""
_SAMPLE = re.compile(r"^storage_consumer_(\w+?)(\{.*\})? (\S+)$")
_PLACE = re.compile(r"(at \d|started |failed |(halted|paused|waiting|running) \S+$)")
_TITLES = ("Stopped", "Waiting", "Statements that are not done")
"""Of the page's sections, and lines of it that are put together otherwise than those of the status."""
_KEPT = (
    "time",
    "level",
    "event",
    "table",
    "version",
    "kind",
    "rows",
    "key",
    "error",
    "blockers",
    "what",
    "holder",
    "exit_code",
)
"""Fields of a log line that the pages show."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command said."""

    typed: str
    code: int
    text: str
    """Of standard output and standard error."""


def typed(line: str) -> Ended:
    """Run a command as it is pasted into a shell, and return what it said."""
    words = shlex.split(line)
    program = [sys.executable, "-m", "storage_consumer"] if words[0] == "storage-consumer" else words[:1]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("STORAGE_CONSUMER_")}
    done = subprocess.run(
        [*program, *words[1:]],
        cwd=ROOT,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Ended(typed=line, code=done.returncode, text=done.stdout + done.stderr)


@dataclass(slots=True)
class Watch:
    """Looks at one feed and its program."""

    feed: Feed
    uri: str
    """Of the target."""
    book: Book
    upstream: str = ""
    """URI of the bucket; by default that of the feed's folder."""
    places: dict[str, str] = field(default_factory=dict)
    """What is replaced in the pages."""
    masks: dict[str, str] = field(default_factory=lambda: {r"\n  skipped .*": ""})
    """Regular expression → what its matches are replaced by. What was skipped since the start is no part of a situation."""
    running: Program | None = None
    port: int = 0
    """Where the program answers, if that is known before it starts."""
    witness: Witness = field(init=False)
    """Looks at everything for as long as the test lasts, and begins once a program runs."""
    _before: str = ""
    """The metrics before the situation."""
    _addresses: dict[int, str] = field(default_factory=dict)
    """Of programs, by their numbers."""

    def __post_init__(self) -> None:
        """Have the target and the bucket replaced by those of the pages."""
        self.places[self.uri] = TARGET
        self.places[self.uri.partition("@")[2].rstrip("/")] = "db.example.com:3306"
        self.upstream = self.upstream or self.feed.bucket.uri
        self.places[self.upstream.partition("?")[0]] = BUCKET
        self.witness = Witness(uri=self.uri, address=lambda: self.address if self.running is not None else "")
        self.book.witnesses.append(self.witness)
        self.witness.start()

    @property
    def address(self) -> str:
        """Where the program answers."""
        assert self.running is not None
        if self.port:
            return f"http://127.0.0.1:{self.port}"
        pid = self.running.process.pid
        if pid not in self._addresses:
            self._addresses[pid] = f"http://{self.running.wait_for('listening')['address']}"
        return self._addresses[pid]

    def begin(self) -> None:
        """Begin a situation of a program that is healthy."""
        self.feed.begin()
        if self.running is not None:
            self._before = self.scraped()

    # what is seen

    def status(self, *words: str) -> Ended:
        """What the command `status` says."""
        return typed(self.status_line(*words))

    def status_line(self, *words: str) -> str:
        """The command `status` as it is typed."""
        return shlex.join(["storage-consumer", "status", *words, "--downstream-uri", self.uri])

    def settled(self) -> Ended:
        """The status once the program has stored what its last round left; it does so every few seconds."""
        found: list[Ended] = []

        def has_it() -> bool:
            found[:] = [self.status()]
            pending = [_value(self.scraped(), f"pending_{of}") for of in ("files", "bytes")]
            # The bytes tell this round's report from that of another round with as many files.
            files = "1 file" if pending[0] == 1 else f"{pending[0]:,.0f} files"
            told = re.escape(f"{files}, {data_size(pending[1])}, ")
            return bool(re.search(rf"idle.*\n(.*\n)*  pending +{told}", found[0].text))

        wait_until("a report of the last round", has_it)
        return found[0]

    def is_healthy(self, *words: str) -> bool:
        """Whether the status is healthy."""
        return self.status(*words).code == 0

    def normal(self, text: str) -> str:
        """The text as the pages have it."""
        text = normal(text, self.feed.marks, self.places)
        for pattern, shown in self.masks.items():
            text = re.sub(pattern, shown, text)
        return wrapped(text)

    def logged(self, ended: Ended) -> str:
        """A command with the warnings and errors that it logged, but for assumptions about the bucket; as the pages have them."""
        lines = [
            line for line in ended.text.splitlines() if " level=INFO " not in line and " event=notice " not in line
        ]
        return self.normal("\n".join([f"$ {ended.typed}", *lines])) + f"exit code {ended.code}\n"

    def healed(self, ended: Ended) -> str:
        """The first line of a status, as the pages have it, of which the rest says that all tables run and nothing is left."""
        assert re.search(r"\n  tables +[\d,]+ running\n", ended.text), ended
        assert "pending" not in ended.text or "  pending     0 files, 0 B" in ended.text, ended
        return self.said(ended).partition("\n  ")[0] + f"\nexit code {ended.code}\n"

    def said(self, ended: Ended) -> str:
        """A command with what it said, as the pages have it."""
        return self.normal(f"$ {ended.typed}\n{ended.text.rstrip()}") + f"exit code {ended.code}\n"

    def metrics(self) -> str:
        """The metrics that tell the situation: those that differ from what they were before it."""
        before, after = (self._told(text) for text in (self._before, self.scraped()))
        return "".join(f"{line}\n" for line in after if line not in before)

    def alerts(self, *, files_read: bool = False) -> str:
        """The alerts of conf/prometheus that fire while the situation lasts an hour, in which files are read or not."""
        series = [("up", '{job="storage-consumer",instance="db1:9464"}', 1.0, 0.0)]
        for line in self.scraped().splitlines():
            found = _SAMPLE.match(line)
            # A scrape may meet one of the short rounds; what it shows of it does not last.
            if found and found[3] != "NaN" and (files_read or found[1] != "round_running"):
                labels = f'{{job="storage-consumer",instance="db1:9464"{"," + found[2][1:-1] if found[2] else ""}}}'
                grows = found[1] in _AGES and float(found[3]) > 0 and not self._is_followed(found[1])
                grows |= files_read and found[1] == "files_read_total"
                series.append((f"storage_consumer_{found[1]}", labels, float(found[3]), 60.0 * grows))
        firing = fired(series)
        return "".join(f"{name}\n" for name in firing) or "none\n"

    def once(self, look: Callable[[], str], *needed: str) -> str:
        """What a look shows once it has all these texts."""
        found: list[str] = []

        def has_them() -> bool:
            found[:] = [look()]
            return all(text in found[0] for text in needed)

        wait_until(f"{needed} in what was seen", has_them)
        return found[0]

    def page_says(self, status: str, *needed: str) -> None:
        """Fail unless the page, once it has these words, says what the status says, with the same commands in their order."""
        told = self.normal(status)
        lines = [" ".join(self.normal(line).split()) for line in self._page(*needed)]
        said, word = " ".join(told.split()), lines[0].partition(" ")[2]
        assert f"{word}:" in said, (lines, told)
        for line in lines[1:]:
            words = re.sub(r"(\d-\d\d) (\d\d:)", r"\1T\2", line).split()
            is_place = _PLACE.match(line) and all(each.rstrip(",") in said for each in words)
            assert line in said or line in _TITLES or is_place, (line, told)
        assert [line for line in lines if line in steps(told)] == steps(told), (lines, told)

    def page(self, *needed: str) -> str:
        """The page's headline, and what it shows of tables and statements; once it has these words."""
        return self.normal("\n".join(self._page(*needed)))

    def _page(self, *needed: str) -> list[str]:
        found: list[str] = []

        def has_them() -> bool:
            found[:] = page_lines(_get(f"{self.address}/"))
            return all(any(word in line for line in found) for word in needed)

        wait_until(f"{needed} on the page, which has {found}", has_them)
        return found

    def log(self, name: str, **fields: object) -> str:
        """The newest line of the log of that name, with these values."""
        assert self.running is not None
        lines = [event for event in self.running.events(name) if fields.items() <= event.items()]
        assert lines, self.running.text()[-4000:]
        return self.normal(json.dumps({key: lines[-1][key] for key in _KEPT if key in lines[-1]}, ensure_ascii=False))

    def _is_followed(self, name: str) -> bool:
        """Whether a lag does not grow, since the tables follow the bucket: those that are not stopped, or all."""
        stands = {"lag_seconds": ("halted", "paused", "waiting"), "running_lag_seconds": ("waiting",)}.get(name)
        if stands is None or re.search(r'_phase\{phase="retrying"\} 1', self.scraped()):
            return False
        return not any(re.search(rf'_tables\{{state="{state}"\}} [1-9]', self.scraped()) for state in stands)

    def scraped(self) -> str:
        """All metrics."""
        return _get(f"{self.address}/metrics")

    def _told(self, text: str) -> list[str]:
        """The samples that tell something, as the pages have them."""
        kept = []
        for line in text.splitlines():
            found = _SAMPLE.match(line)
            if found and found[1] in _TELLING and (float(found[3]) or found[1] == "writer"):
                # What a mask blanks leaves no line.
                kept += [shown for shown in self.normal(line).splitlines() if shown]
        return kept


def _value(metrics: str, name: str) -> float:
    """The value of a metric without labels; NaN if it is not there."""
    found = re.search(rf"^storage_consumer_{name} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else math.nan


def steps(text: str) -> list[str]:
    """The commands that a status names, in its order."""
    return [line.removeprefix("  next: ") for line in text.splitlines() if line.startswith("  next: ")]


def fired(series: Sequence[tuple[str, str, float, float]]) -> list[str]:
    """The alerts that fire after an hour in which these series went on: name, labels, first value, growth by minute."""
    given = [{"series": f"{name}{labels}", "values": f"{value}+{grows}x60"} for name, labels, value, grows in series]
    asked = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "60m"}
    tests = [{"interval": "1m", "input_series": given, "promql_expr_test": [{**asked, "exp_samples": []}]}]
    rules = {"rule_files": [str(ROOT / "conf/prometheus/alerts.yml")], "evaluation_interval": "1m", "tests": tests}
    with tempfile.TemporaryDirectory(prefix="alerts-") as folder:
        path = Path(folder) / "test.yml"
        path.write_text(json.dumps(rules), encoding="utf-8")
        # Nothing is expected, so the tool fails with what there is.
        told = promtool("test", "rules", str(path), fails="got:")
    return sorted(set(re.findall(r'alertname=\\?"(\w+)', told)))


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as response:  # noqa: S310 - http on loopback
        text: str = response.read().decode()
    return text


class _Lines(HTMLParser):
    """The lines of the sections of a page that tell a situation."""

    _SECTIONS = ("headline", "stopped", "waiting", "statements")
    _BREAKS = ("h1", "h2", "h3", "li", "p", "tr", "code", "article")

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._depth = 0
        self._skips = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        if tag == "section":
            self._depth = int(given.get("id") in self._SECTIONS and "hidden" not in given)
        if tag in self._BREAKS:
            self.lines.append("")
            # The reason of a table is the one of the status, the heads of columns say nothing.
            self._skips = given.get("class") == "reason" or tag == "thead"
        if tag in ("td", "th"):
            self.lines[-1] += " "
            self._skips = tag == "th"

    def handle_data(self, data: str) -> None:
        if self._depth and self.lines and not self._skips:
            self.lines[-1] += data


def page_lines(html: str) -> list[str]:
    """The lines of a page that tell the situation."""
    found = _Lines()
    found.feed(html)
    return [line for line in (" ".join(line.split()) for line in found.lines) if line]
