"""Before anything is made or bound: a folder without ``metadata``, and where the changefeed's may be instead."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from storage_consumer.bucket.inspector import likely_places
from storage_consumer.bucket.storage import Storage
from storage_consumer.cli.endings import ExitCode, answered
from storage_consumer.config.settings import Tuning, Upstream
from storage_consumer.driver.service import wait_for_metadata
from storage_consumer.errors import NoMetadata, StorageUnavailable
from tests.harness.twins.storage import FakeClock, MemoryStorage
from tests.unit.driving import Stop

GOOD = b'{"checkpoint-ts":449000000000000001}'
HERE = Upstream(scheme="s3", root="b/feeds/one", protocol="csv")


class Places:
    """Folders in memory, by their roots."""

    def __init__(self, places: Mapping[str, Mapping[str, bytes]]) -> None:
        """What is in each."""
        self.places = {root: MemoryStorage(objects) for root, objects in places.items()}

    def __call__(self, upstream: Upstream) -> Storage:
        """The storage of one, empty for any other."""
        return self.places.setdefault(upstream.root, MemoryStorage())


@pytest.mark.parametrize("root", ["b/feeds", "b", "b/feeds/one/shop", "b/feeds/one/shop/t"])
def test_the_likely_folder(root: str) -> None:
    """A folder one level too high, or up to three levels too low, names the one with a metadata."""
    tree = {"metadata": GOOD, "shop/meta/schema_1_0000000001.json": b"{}", "shop/t/1/CDC1.csv": b"x"}
    prefix = "b/feeds/one/"
    everything = {f"{prefix}{path}": content for path, content in tree.items()}
    everything |= {"b/feeds/other/x/y": b"", "b/feeds/a": b"", "b/feeds/metadata": b"no checkpoint"}
    opened = Places(
        {
            at: {p.removeprefix(f"{at}/"): content for p, content in everything.items() if p.startswith(f"{at}/")}
            for at in ("b", "b/feeds", "b/feeds/one", "b/feeds/one/shop", "b/feeds/other")
        }
    )
    found = likely_places(replace(HERE, root=root), opened)
    assert found == (() if root == "b" else ("s3://b/feeds/one",))


def test_looking_around_is_bounded() -> None:
    """However many folders and objects there are, and whatever does not answer, some tens of requests are made."""
    objects = {f"folder{number:05d}/{name}": b"" for number in range(2_000) for name in "abc"}
    opened = Places({HERE.root: objects})
    assert likely_places(HERE, opened) == ()
    assert sum(place.requests for place in opened.places.values()) < 100
    opened.places[HERE.root].available = False
    assert likely_places(HERE, opened) == ()


def waited(opened: Places, clock: FakeClock | None = None, *, once: bool, stop: Stop | None = None) -> bool:
    """Wait at `HERE`."""
    return wait_for_metadata(HERE, opened, Tuning(), clock or FakeClock(), stop or Stop(), once=once)


def test_once_without_metadata() -> None:
    """With --once an empty or foreign folder is an error of its own, which names the likely folder."""
    opened = Places({"b/feeds": {"metadata": GOOD}, HERE.root: {"holiday.jpg": b"x"}})
    with pytest.raises(NoMetadata, match=r"s3://b/feeds/one has no metadata.*likely s3://b/feeds: give that"):
        waited(opened, once=True)
    with pytest.raises(NoMetadata, match="Is the upstream URI the changefeed's sink URI"):
        waited(Places({}), once=True)


@pytest.mark.parametrize("content", [GOOD, b"", b"torn", b'{"checkpoint-ts":18446744073709551615}'])
def test_any_metadata_will_do(content: bytes) -> None:
    """Whether its content can be read is another question, for each round."""
    assert waited(Places({HERE.root: {"metadata": content}}), once=True)


def test_following_waits_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Without --once the first metadata is waited for as long as it takes, and that is said once."""
    opened = Places({})

    class Late(FakeClock):
        def advance(self, seconds: float) -> None:
            super().advance(seconds)
            if self.monotonic() > 10_000:
                opened.places[HERE.root].put("metadata", GOOD)

    with caplog.at_level(logging.WARNING):
        assert waited(opened, Late(), once=False)
    assert [record.message.startswith("checkpoint_missing") for record in caplog.records] == [True]


def test_asked_to_stop() -> None:
    """A signal ends the waiting."""
    stop = Stop()
    stop.requested.set()
    assert not waited(Places({}), once=False, stop=stop)


def test_a_bucket_that_does_not_answer() -> None:
    """It is tried again for the limit."""
    opened, clock = Places({HERE.root: {}}), FakeClock()
    opened.places[HERE.root].available = False
    with pytest.raises(StorageUnavailable):
        waited(opened, clock, once=True)
    assert 300 <= clock.monotonic() < 310


def look(folder: Path, *, as_json: bool = False) -> tuple[str, bool]:
    """What `inspect` prints of a folder."""
    options: dict[str, object] = {"upstream_uri": folder.as_uri()}
    found = answered("inspect", options | ({"json": "true"} if as_json else {}), {})
    return found.text, found.code == ExitCode.DONE


@pytest.mark.parametrize("where", ["", "feed/shop", "feed/shop/t"])
def test_inspect_names_the_likely_folder(tmp_path: Path, where: str) -> None:
    """Of a folder one level too high or some too low `inspect` says which one it is likely to be, and is not content."""
    feed = tmp_path / "feed"
    (feed / "shop" / "t" / "meta").mkdir(parents=True)
    (feed / "shop" / "t" / "meta" / "schema_449000000000000001_0000000001.json").write_text("{}")
    (feed / "metadata").write_bytes(GOOD)
    text, fine = look(tmp_path / where)
    assert f"not the changefeed's folder, which is likely {feed.as_uri()}" in text
    assert "storage-consumer run" not in text
    assert not fine
    document = json.loads(look(tmp_path / where, as_json=True)[0])
    assert document["likely"] == [feed.as_uri()]


def test_inspect_of_an_empty_and_a_foreign_folder(tmp_path: Path) -> None:
    """It says that there is nothing, or nothing that TiCDC writes."""
    assert "there is no object at all" in look(tmp_path)[0]
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    assert "none of the 1 objects is one that TiCDC writes" in look(tmp_path)[0]
