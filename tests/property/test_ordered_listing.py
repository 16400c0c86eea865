"""Laws of jumping over what may be left out: whatever lies in a bucket, whatever was listed before, nothing else is left out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from storage_consumer.bucket.paths import folder_above, left_out
from storage_consumer.bucket.stores.object_store import OrderedBucket, Page, StoreErrors
from storage_consumer.config.settings import Secrets, Upstream
from storage_consumer.model import StoredObject

FOLDERS = [f"s/t{table}/{version}/2024-01-0{day}" for table in "01" for version in "12" for day in "123"]
FILES = [f"CDC{number:06d}.csv" for number in range(1, 8)]
PATHS = [f"{folder}/{name}" for folder in FOLDERS for name in (*FILES, "meta/CDC.index")]
PATHS += ["s/", "s/t0/", "s/t0/1/", "s/t0/meta/", *(f"{folder}/" for folder in FOLDERS)]
PATHS += ["metadata", "s/meta/schema_1", "s/t0/meta/schema_1", "s/t0/meta/schema_2", "s/t1/meta/schema_1", "z/last"]


class Errors(StoreErrors):
    """There are none."""

    cloud = "here"

    def translated(self, error: Exception, path: str) -> Exception:
        """Nothing is asked over a network."""
        return RuntimeError(f"{path}: {error}")


class Held(OrderedBucket):
    """A bucket whose names are held here; a jump may show the name that it begins at, as some stores do."""

    errors_of = Errors

    def __init__(self, *, inclusive: bool) -> None:
        """Without objects. `inclusive`: a listing shows the name that it is to begin behind."""
        super().__init__(Upstream(scheme="s3", root="bucket", protocol="csv"), Secrets())
        self._inclusive = inclusive
        self.paths: list[str] = []

    def _page(self, folder: str, *, delimited: bool = False, after: str = "", token: str = "", limit: int = 0) -> Page:
        prefix = self._within(folder)
        place = bisect_right(self.paths, token) if token else bisect_left(self.paths, after)
        entries: dict[str, bool] = {}
        last = token
        for path in (path for path in self.paths[place:] if path.startswith(prefix)):
            begin, slash, _ = path[len(prefix) :].partition("/")
            is_folder = bool(delimited and slash)
            entry = prefix + begin if is_folder else path
            if entry not in entries and len(entries) == (limit or self.page_size):
                return self._shown(entries, token=last)
            if not (path == after and not self._inclusive):
                entries[entry] = is_folder
            last = path
        return self._shown(entries, token="")

    def _shown(self, entries: dict[str, bool], *, token: str) -> Page:
        return Page(
            objects=tuple(StoredObject(path=path, size=1, tag="x") for path, folder in entries.items() if not folder),
            folders=tuple(path for path, folder in entries.items() if folder),
            token=token,
        )

    def blocks(self, path: str, size: int, start: int = 0, tag: str = "") -> Iterator[bytes]:
        """No object has any content."""
        raise FileNotFoundError(f"{path} {tag}, in pieces of {size} bytes from {start} on")

    def _open(self) -> Any:
        raise AssertionError("nothing is asked over a network")


Look = tuple[set[str], set[str], dict[str, str]]
LOOKS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(PATHS)),
        st.sets(st.sampled_from([*FOLDERS, "s/t0/1", "s/t1/2", "s/t1/1"])),
        st.dictionaries(st.sampled_from(FOLDERS), st.sampled_from(FILES)),
    ),
    min_size=1,
    max_size=6,
)


@given(looks=LOOKS, page_size=st.integers(1, 12), inclusive=st.booleans())
def test_only_what_is_known_is_left_out(looks: list[Look], page_size: int, *, inclusive: bool) -> None:
    """Each object that may not be left out shows once in each listing, however much the bucket has changed since the one before."""
    bucket = Held(inclusive=inclusive)
    bucket.page_size = page_size + inclusive
    for paths, closed, after in looks:
        bucket.paths = sorted(paths)
        for _ in range(2):
            found = [stored.path for stored in bucket.listing(frozenset(closed), after)]
            assert sorted(found) == [
                path
                for path in sorted(paths)
                if not folder_above(path, frozenset(closed)) and not left_out(path, after)
            ]


@given(looks=LOOKS, page_size=st.integers(4, 12))
def test_schema_files_come_after_the_files_of_their_table(looks: list[Look], page_size: int) -> None:
    """In each listing the data files of a table show before its schema files."""
    bucket = Held(inclusive=False)
    bucket.page_size = page_size
    for paths, closed, after in looks:
        bucket.paths = sorted(paths)
        found = [stored.path for stored in bucket.listing(frozenset(closed), after)]
        for table in ("s/t0/", "s/t1/"):
            of_table = [path for path in found if path.startswith(table)]
            assert of_table == sorted(of_table, key=lambda path: (path.startswith(f"{table}meta/"), path))
