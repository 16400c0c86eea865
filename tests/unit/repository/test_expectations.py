"""What no consumer can reach is listed per recording, each with the reason that must be given."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness.corpora import Corpus
from tests.harness.expectations import can_be_equal, has_commit_ts, overwritten, overwritten_files, stated_halts

CSV, JSON = "file:///TREE?protocol=csv", "file:///TREE?protocol=canal-json&enable-tidb-extension=true"
TIMED = "include-commit-ts = true"
NAMES = ("keyless.nk", "names.😀")


def corpus(folder: Path, uri: str = CSV, toml: str = "", **facts: Any) -> Corpus:
    """A recording of one cut with an ordinary and a strange table."""
    golden = folder / "golden" / "7"
    golden.mkdir(parents=True)
    tables = [dict(zip(("schema", "table"), name.split("."), strict=True)) for name in NAMES]
    rest: dict[str, Any] = {"columns": [], "primary_key": None, "file": "0000.ndjson"}
    (golden / "tables.json").write_text(json.dumps([table | rest for table in tables]))
    cuts = [{"checkpoint_ts": 7, "files": {}}]
    known = {"sink_uri": uri, "changefeed_toml": toml, "timezone": "UTC", "cuts": cuts}
    (folder / "corpus.json").write_text(json.dumps(known | facts))
    return Corpus(folder)


@pytest.mark.parametrize(
    ("uri", "toml", "kind", "stated"),
    [
        (CSV, TIMED, "mysql", {"keyless.nk", "names.😀"}),
        (CSV, TIMED, "tidb", {"keyless.nk"}),
        (CSV, f"{TIMED}\noutput-old-value = true", "mariadb", {"names.😀"}),
        (CSV, "output-old-value = true", "tidb", {"keyless.nk"}),
        (JSON, "", "tidb", set()),
        (JSON, "delete-only-output-handle-key-columns = true", "tidb", {"keyless.nk"}),
    ],
)
def test_what_may_stop(tmp_path: Path, uri: str, toml: str, kind: str, stated: set[str]) -> None:
    """Tables without a key may stop where their rows are not told, strange names where the server has no such names."""
    assert set(stated_halts(corpus(tmp_path, uri, toml), kind)) & set(NAMES) == stated


def test_the_reason_counts(tmp_path: Path) -> None:
    """The pattern of a stated halt is found in an error that gives the reason, and in no other."""
    pattern = stated_halts(corpus(tmp_path, toml=TIMED), "mysql")["keyless.nk"]
    assert re.search(pattern, "set `[sink.csv] output-old-value = true` in the changefeed")
    assert not re.search(pattern, "the target refused the row")


@pytest.mark.parametrize(
    ("uri", "toml", "told", "comparable"),
    [
        (CSV, TIMED, True, True),
        (CSV, "include-commit-ts = false", False, False),
        (CSV, "", False, False),
        (JSON, "", True, True),
        ("file:///TREE?protocol=canal-json", "", False, True),
    ],
)
def test_rows_without_a_time(tmp_path: Path, uri: str, toml: str, *, told: bool, comparable: bool) -> None:
    """Where rows tell no time at all, a bucket that holds rows of later cuts can't be held against this one."""
    recorded = corpus(tmp_path, uri, toml)
    assert has_commit_ts(recorded) == told
    assert can_be_equal(recorded, rows_beyond=False)
    assert can_be_equal(recorded, rows_beyond=True) == comparable


def test_what_the_source_overwrote(tmp_path: Path) -> None:
    """Partitioned tables of such a recording are left out, and an earlier cut shows other content under the same name."""
    schema, data = "s/t/meta/schema_1_0000000001.json", "s/t/1/CDC1.csv"
    tree = tmp_path / "tree"
    for path, text in (
        (schema, '{"Schema": "s", "Table": "t", "TableVersion": 1, "Query": "... partition by hash"}'),
        (data, "a\n"),
    ):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    files = {schema: (tree / schema).stat().st_size}
    cuts = [{"checkpoint_ts": ts, "files": files | {data: size}} for ts, size in ((1, 9), (7, 2))]
    recorded = corpus(tmp_path, cuts=cuts, expected_loss=True)
    assert overwritten(recorded) == {"s.t"}
    assert overwritten_files(recorded) == (data,)
    for cut, content in zip(recorded.cuts, ("a\na\n", "a\n"), strict=True):
        recorded.materialise(cut, tmp_path / "bucket")
        assert (tmp_path / "bucket" / data).read_text() == content
