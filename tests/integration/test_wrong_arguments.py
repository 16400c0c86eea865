"""Commands whose words are wrong, or contradict one another, or mean nothing that is there."""

from __future__ import annotations

import os

import pytest

from storage_consumer.cli.main import main
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = pytest.mark.server
WRONG = [
    (["table", "pause"], "needs --table"),
    (["table", "skip"], "needs --table"),
    (["table", "reload-done", "--table", "d.a"], "--at, the TSO"),
    (["table", "resume", "--table", "d.a", "--at", "1"], "--at, the TSO"),
    (["table", "reload-done", "--table", "d.a", "--at", "x"], "a TSO or a time with its zone"),
    (["table", "holt"], "invalid choice"),
    (["table"], "there is no state schema storage_consumer"),
    (["load", "--dump", "file:///x"], "needs --table"),
    (["load", "cancel"], "needs --table"),
    (["load", "pause", "--table", "d.a", "--dump", "file:///x"], "takes neither --dump nor --at"),
    (["load", "--table", "d.a", "--dump", "file:///x", "--at", "1"], "give one of them"),
    (["load", "--table", "d.a", "--replace"], "--replace goes with --dump"),
    (["load", "--table", "d.a", "--dump", "s3://b/x?access-key=A&secret-access-key=B"], "no secret belongs here"),
    (["load"], "there is no state schema storage_consumer"),
    (["verify"], "verify needs --source"),
    (["verify", "--source", "mysql://root@127.0.0.1:1/"], "only with --frozen"),
    (["verify", "--source", "tidb://root@127.0.0.1:1/", "--workers", "many"], "--workers: "),
    (
        ["verify", "--source", "tidb://root@127.0.0.1:1/", "--source-password-file", "/no/such/file"],
        "--source-password-file",
    ),
    (["changes", "--to", str(ts(10))], "complete up to its checkpoint"),
    (["changes", "--key", "1"], "give that too"),
    (["changes", "--format", "undo-sql"], "say with --from"),
    (["changes", "--follow", "--to", "5"], "goes on for ever"),
    (["changes", "--from", "yesterday"], "--from: a TSO or a time with its zone"),
    (["changes", "--from", "9", "--to", "3"], "is before --from"),
    (["changes", "--table", "a.b.c"], "database.table is expected"),
    (["changes", "--table", "d.nope", "--from", str(ts(2))], "the bucket has no table d.nope"),
    (["changes", "--table", "d.nope", "--format", "sql"], "the bucket has no table d.nope"),
    (["changes", "--table", "d.nope", "--format", "undo-sql", "--from", str(ts(2))], "the bucket has no table d.nope"),
    (["changes", "--table", "nope", "--format", "sql"], "the bucket has no table nope"),
    (["changes", "--table", "d.a", "--to", str(ts(10)), "--format", "sql"], "complete up to its checkpoint"),
    (
        ["changes", "--table", "d.a", "--filter", "d.*", "--filter", "!d.a"],
        "no table d.a that the filter (d.*, !d.a) takes",
    ),
    (["changes", "--filter", "nope.*"], "no table that the filter (nope.*) takes"),
    (["changes", "--from", "1795225423"], "1795225423 is no TSO of a TiDB"),
]


@pytest.mark.parametrize(("words", "told"), WRONG)
def test_wrong_arguments(
    words: list[str],
    told: str,
    mariadb: DatabaseServer,
    bucket: SmallBucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is wrong is said in a line, with code 2, and nothing is printed."""
    for name in [name for name in os.environ if name.startswith("STORAGE_CONSUMER_")]:
        monkeypatch.delenv(name)
    bucket.create("d.a")
    bucket.rows("d.a", 1, row("d.a", 2, "1", '"one"'))
    bucket.metadata(ts(9))
    where = ["--upstream-uri", bucket.uri] if words[0] == "changes" else ["--downstream-uri", mariadb.uri]
    try:
        code: object = main([*words, *where])
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert told in said.err
    assert said.err.count("\n") == 1
