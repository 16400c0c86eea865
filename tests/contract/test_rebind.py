"""`storage-consumer rebind`: a state goes on with the same files at another place, and with no others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_consumer.bucket.schema_file import parse_schema_file
from storage_consumer.bucket.storage import Storage
from storage_consumer.bucket.stores import open_storage
from storage_consumer.checkpoint.store import StateStore
from storage_consumer.cli import main
from storage_consumer.cli.endings import answered
from storage_consumer.config.settings import Downstream, Secrets, Upstream
from storage_consumer.errors import ConfigError, LeaseHeld, LeaseLost
from storage_consumer.model import StoredObject
from storage_consumer.plan.finished_files import REWRITTEN, Digests, Finished, digest_of
from tests.harness.s3_server import S3Server
from tests.harness.servers import DatabaseServer
from tests.harness.small_bucket import SmallBucket, row, ts

pytestmark = pytest.mark.server
READ = ts(9)


@pytest.fixture
def old(tmp_path: Path) -> SmallBucket:
    """A bucket with two tables."""
    found = SmallBucket(root=tmp_path / "old")
    found.create("shop.a", "shop.b")
    for table in ("shop.a", "shop.b"):
        for number in (1, 2):
            found.rows(table, number, row(table, 2, str(number), '"one"'))
    found.metadata(READ)
    return found


@pytest.fixture
def state(old: SmallBucket, server: DatabaseServer) -> Iterator[StateStore]:
    """A state that has read all of it; nobody holds its lease."""
    found = StateStore(Downstream(port=server.port), "")
    found.open(old.root.as_uri())
    assert found.lease.acquire("host|place|1|x", 30) == ""
    read, sequences = [], {}
    for path in sorted(old.root.rglob("schema_*.json")):
        where = path.relative_to(old.root).as_posix()
        version, checksum = (int(part) for part in path.stem.split("_")[1:])
        table_dir = where.partition("/meta/")[0]
        read.append((table_dir, parse_schema_file(path.read_bytes(), where, version, checksum, table_dir=table_dir)))
    for path in sorted(old.root.rglob("*2.csv")):
        status, digests = path.stat(), Digests({})
        digests[2] = digest_of(StoredObject(path=path.name, size=status.st_size, tag=str(status.st_mtime_ns)))
        folder = path.parent.relative_to(old.root).as_posix()
        sequences[f"{folder}||20"] = Finished(upto=2, digests=digests.moved()[0])
    found.history.keep(read)
    found.progress.save(tables=(), sequences=sequences, checkpoint=READ, storage_checkpoint=READ)
    found.lease.release()
    yield found
    found.close()


@pytest.fixture
def new(old: SmallBucket, state: StateStore, tmp_path: Path) -> SmallBucket:
    """A copy with other times."""
    del state
    shutil.copytree(old.root, tmp_path / "new", copy_function=shutil.copyfile)
    for path in (tmp_path / "new").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return SmallBucket(root=tmp_path / "new")


def bind(new: SmallBucket, server: DatabaseServer, *, uri: str = "", **options: object) -> str:
    """What the command prints."""
    reach = {"upstream_uri": uri or new.root.as_uri(), "downstream_uri": server.uri}
    return answered("rebind", reach | options, {}).text


def bound(server: DatabaseServer) -> str:
    """The bucket that the state is bound to."""
    ((found,),) = server.query("SELECT upstream FROM storage_consumer.feed")
    return str(found)


def test_a_copy_is_bound(new: SmallBucket, old: SmallBucket, server: DatabaseServer) -> None:
    """It says what was compared, from where and who wrote; asked again it changes nothing; a start there goes on."""
    before = StateStore(Downstream(port=server.port), "")
    with pytest.raises(ConfigError, match="storage-consumer rebind --upstream-uri"):
        before.open(new.root.as_uri())
    before.close()
    ((epoch,),) = server.query("SELECT epoch FROM storage_consumer.lease")
    text = bind(new, server)
    for part in (
        old.root.as_uri(),
        new.root.as_uri(),
        "3 schema files that say the same",
        "2 last finished data files",
    ):
        assert part in text
    assert server.query("SELECT epoch, holder FROM storage_consumer.lease") == ((epoch + 1, ""),)
    assert bound(server) == new.root.as_uri()
    assert "already" in bind(new, server)
    after = StateStore(Downstream(port=server.port), "")
    after.open(new.root.as_uri())
    assert after.lease.acquire("me", 30) == ""
    assert after.progress.load()[1] == READ
    after.close()
    assert json.loads(bind(new, server, json="true"))["outcome"] == "same"


def test_old_files_may_have_expired(new: SmallBucket, server: DatabaseServer) -> None:
    """Data files that are gone are counted; the document tells what was compared."""
    for path in (new.root / "shop" / "a").rglob("*.csv"):
        path.unlink()
    document = json.loads(bind(new, server, json="true"))
    assert (document["outcome"], document["compared"]["last_data_files_there"]) == ("bound", 1)
    assert document["compared"]["last_data_files_gone"] == 1


def another_statement(new: SmallBucket) -> str:
    """A schema file says something else."""
    (path,) = (new.root / "shop" / "a").rglob("schema_*.json")
    path.write_text(path.read_text(encoding="utf-8").replace("VARCHAR(20)", "VARCHAR(40)"), encoding="utf-8")
    return "statement or structure differs"


def other_rows(new: SmallBucket) -> str:
    """The last file of a table holds another row of as many bytes."""
    path = max(new.root.rglob("*2.csv"))
    path.write_bytes(path.read_bytes().replace(b"one", b"two"))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return rf"hold other rows than in .*\n  .*{path.name}"


def another_size(new: SmallBucket) -> str:
    """A data file that was read has more bytes."""
    (path,) = (new.root / "shop" / "b").rglob("*2.csv")
    path.write_bytes(path.read_bytes() * 2)
    return "have another size than when they were read"


def torn_schema_file(new: SmallBucket) -> str:
    """A schema file was copied in part."""
    (path,) = (new.root / "shop" / "a").rglob("schema_*.json")
    path.write_bytes(path.read_bytes()[:50])
    return "not JSON"


def older(new: SmallBucket) -> str:
    """The copy is from before what was read."""
    new.metadata(READ - 1)
    return "the copy is older than the state"


def absurd(new: SmallBucket) -> str:
    """Its metadata can't be."""
    new.metadata((1 << 64) - 1)
    return "ahead of the clock"


def no_metadata(new: SmallBucket) -> str:
    """There is none."""
    (new.root / "metadata").unlink()
    return "has no metadata"


def another_changefeed(new: SmallBucket) -> str:
    """Everything in it is another's."""
    shutil.rmtree(new.root / "shop")
    new.schema("shop.a", ts(5), "", 0)
    new.rows("shop.a", 1, row("shop.a", 6, "1", '"one"'), version=ts(5))
    return "none of the files that were read"


def half(new: SmallBucket) -> str:
    """A table was not copied."""
    shutil.rmtree(new.root / "shop" / "b")
    return "Copy them too"


@pytest.mark.parametrize(
    "harm",
    [
        another_statement,
        other_rows,
        another_size,
        torn_schema_file,
        older,
        absurd,
        no_metadata,
        another_changefeed,
        half,
    ],
)
@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_other_files_are_refused(harm: object, new: SmallBucket, old: SmallBucket, server: DatabaseServer) -> None:
    """The refusal names what differs, and nothing is changed."""
    assert callable(harm)
    reason = harm(new)
    with pytest.raises(ConfigError, match=reason):
        bind(new, server)
    assert bound(server) == old.root.as_uri()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
@pytest.mark.parametrize("is_moved", [True, False])
def test_contents_are_compared_where_both_places_are_there(
    new: SmallBucket, old: SmallBucket, server: DatabaseServer, *, is_moved: bool
) -> None:
    """What is compared of the last files is said, and also that a place which was moved shows nothing to compare with."""
    if is_moved:
        shutil.rmtree(old.root)
    text = bind(new, server)
    assert ("compared: 2 of them with the former place, by content" in text) is not is_moved
    assert ("not compared: the content of 2 of them" in text) is is_moved


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_schema_files_that_were_deleted_on_purpose(new: SmallBucket, server: DatabaseServer) -> None:
    """They may be missing if the operator says so."""
    half(new)
    assert "not there, as allowed: 1 schema files" in bind(new, server, allow_missing="true")
    assert bound(server) == new.root.as_uri()


def test_a_running_writer(
    new: SmallBucket, old: SmallBucket, server: DatabaseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """While somebody holds the lease nothing is bound: exit code 3; once it has run out the former writer can write no more."""
    writer = StateStore(Downstream(port=server.port), "")
    writer.open(old.root.as_uri())
    assert writer.lease.acquire("elsewhere|place|77|x", 30) == ""
    with pytest.raises(LeaseHeld, match="host elsewhere, pid 77"):
        bind(new, server)
    words = ["rebind", "--upstream-uri", new.root.as_uri(), "--downstream-uri", server.uri]
    assert main.main(words) == 3
    assert "stop it first" in capsys.readouterr().err
    server.query("UPDATE storage_consumer.lease SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    assert main.main(words) == 0
    assert "host elsewhere, pid 77" in capsys.readouterr().out
    assert not writer.lease.renew(30)
    with pytest.raises(LeaseLost):
        writer.progress.save(tables=(), sequences={}, checkpoint=1, storage_checkpoint=1)
    writer.close()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_every_file_has_another_tag(new: SmallBucket, state: StateStore, server: DatabaseServer) -> None:
    """No digest is kept, so that the next start reads the copy again instead of taking it for written anew; what was so before stays so."""
    assert state.lease.acquire("me", 30) == ""
    before, sequences = Digests({}), state.progress.load()[0].done
    before[1], before[2] = REWRITTEN, digest_of(StoredObject(path="x", size=1, tag="1"))
    first = min(sequences)
    assert all(done.digests for done in sequences.values())
    state.progress.save(
        tables=(),
        sequences={"a/1||20": Finished(upto=2, digests=before.moved()[0])},
        checkpoint=0,
        storage_checkpoint=0,
    )
    state.lease.release()
    assert bind(new, server)
    assert state.lease.acquire("me", 30) == ""
    done = state.progress.load()[0].done
    assert done[first].upto == 2
    assert not done[first].digests
    assert (Digests(done["a/1||20"].digests)[1], Digests(done["a/1||20"].digests)[2]) == (REWRITTEN, 0)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_to_a_store(new: SmallBucket, server: DatabaseServer, s3: S3Server) -> None:
    """A folder that was copied to S3: tags of another kind, the same content."""
    s3.upload(new.root, "rebound", "moved")
    text = bind(new, server, uri=s3.uri("rebound", "moved", s3.reader))
    assert "compared: 2 of them with the former place, by content" in text
    assert "3 schema files that say the same" in text
    assert bound(server) == "s3://rebound/moved"


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_state_that_was_never_bound_or_is_older(new: SmallBucket, server: DatabaseServer) -> None:
    """A state of an older version can be bound, since `run` would not migrate it before; without one it is said."""
    server.query("UPDATE storage_consumer.version SET version = 2")
    server.query("DROP TABLE storage_consumer.schema_history")
    assert "2 last finished data files" in bind(new, server)
    server.query("DROP DATABASE storage_consumer")
    with pytest.raises(ConfigError, match="there is no state schema"):
        bind(new, server)


def longer(bucket: SmallBucket, number: int) -> Path:
    """Write a data file of shop.a anew with other rows, of another size."""
    return bucket.rows("shop.a", number, row("shop.a", 3, "7", '"a longer name"'))


def digests_of(bucket: SmallBucket) -> dict[str, Finished]:
    """What a state knows of shop.a once both of its files are finished, of which listings leave out the first."""
    digests, folder = Digests({}), bucket.file("shop.a", 1).parent
    for number in (1, 2):
        path = bucket.file("shop.a", number)
        digests[number] = digest_of(StoredObject(path=path.name, size=path.stat().st_size, tag="1"))
    name = f"{folder.relative_to(bucket.root).as_posix()}||20"
    return {name: Finished(upto=2, left_out=1, digests=digests.moved()[0])}


def keep(state: StateStore, sequences: dict[str, Finished]) -> None:
    """Have a state know these files, and no lease."""
    assert state.lease.acquire("me", 30) == ""
    state.progress.save(tables=(), sequences=sequences, checkpoint=0, storage_checkpoint=0)
    state.lease.release()


def known(state: StateStore, name: str) -> Digests:
    """The digests of a sequence."""
    assert state.lease.acquire("me", 30) == ""
    found = Digests(state.progress.load()[0].done[name].digests)
    state.lease.release()
    return found


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_file_below_that_was_written_anew(
    new: SmallBucket, old: SmallBucket, state: StateStore, server: DatabaseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any finished file with another size is named; where that is allowed its digest alone is kept, by which a start sees it."""
    sequences = digests_of(old)
    ((name, before),) = sequences.items()
    keep(state, sequences)
    path = longer(new, 1).relative_to(new.root)
    with pytest.raises(ConfigError, match="--allow-rewritten") as refused:
        bind(new, server)
    assert f"{path}: it has " in str(refused.value)
    assert "its table would halt" in str(refused.value)
    assert bound(server) == old.root.as_uri()
    words = ["rebind", "--upstream-uri", new.root.as_uri(), "--downstream-uri", server.uri, "--allow-rewritten"]
    assert main.main(words) == 0
    text = capsys.readouterr().out
    assert "1 data files, which `run` reads again" in text
    assert "1 of them may have lost rows" in text
    after = known(state, name)
    assert (after[1], after[2]) == (before.digest(1), 0)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_restored_in_place(old: SmallBucket, state: StateStore, server: DatabaseServer) -> None:
    """The same place is bound once more if that is asked for, and only if its files are those that were read."""
    sequences = digests_of(old)
    ((name, _),) = sequences.items()
    keep(state, sequences)
    assert "add --restored" in bind(old, server)
    assert known(state, name)[2]
    document = json.loads(bind(old, server, restored="true", json="true"))
    assert (document["outcome"], document["from"], document["to"]) == ("restored", document["to"], old.root.as_uri())
    assert document["compared"]["data_files_with_another_size"] == 0
    assert (known(state, name)[1], known(state, name)[2]) == (0, 0)
    assert "as before" in bind(old, server, restored="true")
    keep(state, sequences)
    longer(old, 2)
    with pytest.raises(ConfigError, match="another size"):
        bind(old, server, restored="true")
    assert known(state, name)[2]
    document = json.loads(bind(old, server, restored="true", allow_rewritten="true", json="true"))
    assert document["compared"]["data_files_with_another_size"] == 1
    assert document["compared"]["data_files_rewritten_unseen"] == 0
    old.metadata(READ - 1)
    with pytest.raises(ConfigError, match="older than the state"):
        bind(old, server, restored="true")


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_files_beyond_one_that_is_missing(
    new: SmallBucket, old: SmallBucket, state: StateStore, server: DatabaseServer
) -> None:
    """What was finished out of turn is compared too, though its sequence is finished up to nowhere yet."""
    ((name, before),) = digests_of(old).items()
    keep(state, {name.replace("||", "|7|"): Finished(upto=0, digests=before.digests)})
    folder = old.file("shop.a", 1).parent.relative_to(old.root)
    new.write(f"{folder}/CDC_7_{2:020d}.csv", "another size")
    with pytest.raises(ConfigError, match=r"CDC_7_0+2"):
        bind(new, server)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_consumer_that_ran_meanwhile(
    new: SmallBucket, old: SmallBucket, state: StateStore, server: DatabaseServer
) -> None:
    """A writer that came and went while files were compared knows more than what was compared: nothing is changed."""

    def opened(upstream: Upstream, secrets: Secrets) -> Storage:
        keep(state, digests_of(old))
        return open_storage(upstream, secrets)

    reach = {"upstream_uri": new.root.as_uri(), "downstream_uri": server.uri}
    with pytest.raises(ConfigError, match="ran while its files were compared"):
        answered("rebind", reach, {}, open_storage=opened)
    assert bound(server) == old.root.as_uri()


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
@pytest.mark.parametrize("table", [True, False])
def test_a_state_that_knew_no_digests(new: SmallBucket, server: DatabaseServer, *, table: bool) -> None:
    """A state of version 3, or one whose migration was begun, has no sizes to compare: a file of any size is read again later."""
    server.query("UPDATE storage_consumer.version SET version = 3")
    server.query("ALTER TABLE storage_consumer.file_progress DROP COLUMN left_out")
    server.query("DELETE FROM storage_consumer.file_digests" if table else "DROP TABLE storage_consumer.file_digests")
    longer(new, 1)
    assert "2 last finished data files" in bind(new, server)
    assert bound(server) == new.root.as_uri()
    after = StateStore(Downstream(port=server.port), "")
    after.open(new.root.as_uri())
    assert after.lease.acquire("me", 30) == ""
    assert [(done.upto, done.left_out, done.digests) for done in after.progress.load()[0].done.values()] == [
        (2, 0, {})
    ] * 2
    after.close()
