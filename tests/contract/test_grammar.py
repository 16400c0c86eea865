"""Every form of TiDB's grammar is executed, rewritten, left out, or halts for a reason that is reported; and rows stay equal."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.campaigns.grammar import column_forms, index_forms, recording, table, table_forms
from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.forms import ALL
from tests.campaigns.grammar.playing import play
from tests.campaigns.grammar.reasons import REASONS
from tests.campaigns.grammar.source import played
from tests.harness.servers import DatabaseServer, tidb_program

pytestmark = [pytest.mark.server, pytest.mark.slow]
_CHECKED = 80
"""One of so many forms is played on TiDB again."""


@pytest.mark.parametrize("kind", table.PLAYED)
def test_forms(kind: str, request: pytest.FixtureRequest) -> None:
    """Of every group each outcome is as the table says, and rows and keys then are the source's (D18)."""
    server: DatabaseServer = request.getfixturevalue(kind)
    golden = table.read()
    wrong = {}
    for form, found in play(server, table.chosen(table.taken(), golden, kind)):
        expected = golden[form.name][table.SERVERS.index(kind)]
        if found.problems or table.shown(found) != expected:
            wrong[form.name] = (found, expected)
    assert wrong == {}


def test_table_is_whole() -> None:
    """The table has each form that TiDB takes, what becomes of it on a TiDB target, and a reason for each halt."""
    golden = table.read()
    assert list(golden) == [form.name for form, _ in table.taken()]
    assert {form.name: golden[form.name][-1] for form, _ in table.taken()} == {
        form.name: table.on_tidb(form, source) for form, source in table.taken()
    }
    halted = {part.partition("halts: ")[2] for line in golden.values() for part in line if "halts: " in part}
    assert halted == set(REASONS)


_ELSEWHERE_REFUSED = (
    re.compile(r"(?:DATETIME|YEAR|ENUM).*GENERATED ALWAYS AS\(`v`\+1\)"),
    re.compile("AUTO_INCREMENT.*DEFAULT|DEFAULT.*AUTO_INCREMENT"),
)
"""Columns whose rows a strict session of every server refuses, TiDB's too (1292: 2 is no time), where the source's was not strict:
the program halts with the row. And defaults of counters, which TiDB refuses but for negative ones, and other servers all."""
_ONCE = ("DEFAULT", "GENERATED")
_BY_TYPE = {
    **dict.fromkeys(("INT", "BIGINT UNSIGNED"), (*column_forms.ON_NUMBERS, "GENERATED ALWAYS AS(`v`+1) STORED")),
    **{kind: column_forms.OTHERS[kind] for kind in ("VARCHAR(40)", "DATETIME", "ENUM('a','b')", "TEXT", "YEAR")},
}


def _of_type(kind: str) -> st.SearchStrategy[str]:
    """A column of this type with up to two options, none of them twice."""
    options = st.sampled_from(("", *_BY_TYPE[kind]))
    pairs = st.tuples(options, options).filter(lambda pair: all(" ".join(pair).count(word) < 2 for word in _ONCE))
    texts = pairs.map(lambda pair: " ".join(("`c`", kind, *pair)))
    return texts.filter(lambda text: not any(pattern.search(text) for pattern in _ELSEWHERE_REFUSED))


_columns = st.sampled_from(tuple(_BY_TYPE)).flatmap(_of_type)
_indexes = st.builds(
    "{} `i`({}) {} {}".format,
    st.sampled_from(("INDEX", "UNIQUE")),
    st.sampled_from(("`v`", "`c`", "`v`, `c`", "(`v`+1)", "`v` DESC")),
    st.sampled_from(("", *index_forms.OPTIONS[:6])),
    st.sampled_from(("", *index_forms.OPTIONS[6:])),
)
_created = st.builds(
    "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT,{},{}) {} {}".format,
    _columns,
    _indexes,
    st.sampled_from(("", *table_forms.OPTIONS)),
    st.sampled_from(("", *table_forms.OPTIONS)),
)
_added = st.builds("ALTER TABLE `t` ADD COLUMN {}, ADD {}, {}".format, _columns, _indexes, st.sampled_from(table_forms.OPTIONS))  # fmt: skip
_plain = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` INT)"
_forms = st.builds(
    lambda text: Form(
        group="by chance",
        before=[] if text.startswith("CREATE") else [_plain],
        statements=[" ".join(text.split())],
        by_chance="UUID" in text,
    ),
    st.one_of(_created, _added).filter(lambda text: text.count("COLLATE =") + text.count("CHARACTER SET =") < 2),
)


if tidb_program():

    def test_recording(tidb: DatabaseServer) -> None:
        """What is kept of TiDB is what it makes of the forms; some of them are tried."""
        known = recording.read()
        again = [form for form in ALL if form.name in known][::_CHECKED]
        assert {
            form.name for form, found in played(tidb, again) if found != known[form.name] and not form.by_chance
        } == set()

    @pytest.mark.parametrize("kind", table.PLAYED)
    def test_combinations(kind: str, tidb: DatabaseServer, request: pytest.FixtureRequest) -> None:
        """Options by chance, as far as TiDB takes them together, run on other servers or halt for a reason that is reported."""
        server: DatabaseServer = request.getfixturevalue(kind)
        _combine(tidb, server)()


def _combine(tidb: DatabaseServer, server: DatabaseServer) -> Callable[[], None]:
    """A test of options by chance on one server."""

    @settings(max_examples=3, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.lists(_forms, min_size=20, max_size=40, unique_by=lambda form: form.name))
    def run(forms: list[Form]) -> None:
        taken = [(form, found) for form, found in played(tidb, forms) if found.job]
        wrong = {
            form.name: found
            for form, found in play(server, taken)
            if found.problems or "unexplained" in table.shown(found)
        }
        assert wrong == {}

    return run
