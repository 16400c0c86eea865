"""Looks that fail or hang, the table of checks, and what grants give."""

from __future__ import annotations

import threading
import time
import tomllib
from pathlib import Path

import pytest

from storage_consumer.doctor.bucket_rules import BUCKET, METADATA
from storage_consumer.doctor.checks import CHECKS, GROUPS, group_of
from storage_consumer.doctor.findings import Finding, Verdict, fail, not_looked_at, ok, warn, worst
from storage_consumer.doctor.looks import Unseen, judged, looked
from storage_consumer.doctor.server_rules import AT_START
from storage_consumer.doctor.spark_rules import SPARK
from storage_consumer.doctor.state_rules import STATE
from storage_consumer.doctor.target_rules import TABLES, TARGET
from storage_consumer.downstream.granted import Granted
from storage_consumer.errors import TargetUnavailable
from storage_consumer.spark.surroundings import PYSPARK

ROOT = Path(__file__).resolve().parents[3]


def test_a_look_that_hangs() -> None:
    """A look that takes too long is left behind, and its reason is the time."""
    end, begun = threading.Event(), time.monotonic()
    found = looked(end.wait, 0.05)
    assert isinstance(found, Unseen)
    assert found.why.startswith("no answer within 0.05 s: check the address")
    assert time.monotonic() - begun < 5
    end.set()


def test_a_look_that_fails() -> None:
    """An error of ours gives its own words, any other one its name; neither gets out."""

    def ours() -> None:
        raise TargetUnavailable("nobody is there")

    def other() -> None:
        raise RuntimeError("bad\nthing")

    assert looked(ours) == Unseen("nobody is there")
    assert looked(other) == Unseen("unexpected RuntimeError: bad thing")
    assert looked(lambda: None) is None


def test_what_follows_from_a_look_that_failed() -> None:
    """The first check fails with the reason, and the others were not looked at."""
    rules = {"a-b": lambda _: ok("fine"), "a-c": lambda _: ok("fine")}
    first, second = judged(Unseen("gone"), rules)
    assert (first, second) == (Finding("a-b", fail("gone")), Finding("a-c", not_looked_at("a-b failed")))
    assert [each.outcome for each in judged(1, rules)] == [ok("fine"), ok("fine")]


def test_the_worst_counts() -> None:
    """A failure outweighs a warning; what was not looked at is no alarm."""
    fine, odd, bad = Finding("x", ok("")), Finding("x", warn("", "")), Finding("x", fail(""))
    assert worst((fine, Finding("x", not_looked_at("")))) is Verdict.OK
    assert worst((fine, odd)) is Verdict.WARN
    assert worst((odd, bad)) is Verdict.FAIL


def test_every_check_has_a_rule() -> None:
    """The table has each rule's check and no other one, each in a group, those of a group together."""
    ruled = {"bucket-reachable", "network-bucket", "spark-executors"}
    ruled |= {name for rules in (METADATA, BUCKET, TARGET, TABLES, SPARK, STATE) for name in rules}
    assert ruled == {*CHECKS}
    assert {*AT_START} <= ruled
    assert list(dict.fromkeys(map(group_of, CHECKS))) == list(GROUPS)


def test_pyspark_as_the_package_needs_it() -> None:
    """The supported versions are those of the package's dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    low, high = (".".join(map(str, each)) for each in PYSPARK)
    assert f"pyspark>={low},<{high}" in project["dependencies"]


@pytest.mark.parametrize(
    ("lines", "schema", "missing"),
    [
        (["GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION"], "d", ()),
        (["GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT, INDEX ON `d`.* TO `u`@`%`"], "d", ()),
        (["GRANT SELECT ON `d`.* TO `u`@`%`"], "d", ("INDEX",)),
        (["GRANT SELECT,INDEX ON `d`.* TO 'u'@'%'"], "e", ("SELECT", "INDEX")),
        (["GRANT SELECT, INDEX ON `a\\_b`.* TO `u`@`%`"], "a_b", ()),
        (["GRANT SELECT, INDEX ON `a\\_b`.* TO `u`@`%`"], "axb", ("SELECT", "INDEX")),
        (["GRANT SELECT, INDEX ON `a_%`.* TO `u`@`%`"], "axyz", ()),
        (["GRANT SELECT, INDEX ON `d`.`t` TO `u`@`%`"], "d", ("SELECT", "INDEX")),
        (["GRANT SELECT (`a`), INDEX ON `d`.* TO `u`@`%`"], "d", ("SELECT",)),
        (["GRANT ALL ON *.* TO `u`@`%`", "REVOKE INDEX ON `d`.* FROM `u`@`%`"], "d", ("INDEX",)),
        (["GRANT ALL ON *.* TO `u`@`%`", "REVOKE INDEX ON `d`.* FROM `u`@`%`"], "e", ()),
        (["GRANT `role`@`%` TO `u`@`%`"], "d", ("SELECT", "INDEX")),
        (["GRANT ALL ON `a``b`.* TO `u`@`%`"], "a`b", ()),
    ],
)
def test_what_grants_give(lines: list[str], schema: str, missing: tuple[str, ...]) -> None:
    """Rights on all databases or on one count; those on tables, on columns and through a role that is not active do not."""
    assert Granted(lines).missing(("SELECT", "INDEX"), schema) == missing


def test_names_without_wildcards() -> None:
    """With MySQL's partial_revokes a name in a grant means itself."""
    assert Granted(["GRANT SELECT ON `a_b`.* TO u"], literal_names=True).missing(("SELECT",), "axb") == ("SELECT",)
    assert Granted(["GRANT SELECT ON `a_b`.* TO `u`@`%`"], literal_names=True).missing(("SELECT",), "a_b") == ()
