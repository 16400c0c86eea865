"""Other content in a changefeed's place: how paths or first bytes show it, and the way on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of tree that no changefeed with a storage sink writes."""

    name: str
    path: str
    """A pattern found in some path of such a tree and in none of TiCDC's; empty: see the content.
    """
    content: bytes
    """A pattern that the content of a file of it begins with; empty: only the paths show it."""
    way_on: str


_TO_STORAGE = (
    "TiCDC's storage sink writes only csv and canal-json: create a changefeed with a sink URI like "
    "s3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true, and give that as --upstream-uri"
)
_OF_LAKE = "Give the changefeed's own folder, from which such a table may have been made, as --upstream-uri"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
KINDS: Mapping[str, Kind] = {
    "log_backup": Kind(
        "a log backup of TiDB (br log start)",
        r"(?:^|/)v1/(?:backupmeta/|global_checkpoint/|\d{8}/\d\d/\d+/[^/]+\.log$)|(?:^|/)v1_stream_truncate_safepoint\.txt$",
        b"",
        "It is restored with `br restore point`. Give a changefeed's folder as --upstream-uri",
    ),
    "backup": Kind(
        "a snapshot backup of TiDB (br backup)",
        r"(?:^|/)backup(?:meta(?:\.\w+\.\d+)?|\.lock)$|\d_(?:default|write)\.sst$",
        b"",
        "It is restored with `br restore full`. Give a changefeed's folder as --upstream-uri; a copy to begin with is an "
        "export by Dumpling (--dump)",
    ),
    "redo": Kind(
        "TiCDC's redo logs ([consistent])",
        rf"_(?:row|ddl)_\d+_{_UUID}\.log(?:\.sort)?$|_meta_{_UUID}\.meta$",
        b"",
        "They are applied with `cdc redo apply`. Give the sink URI of a changefeed with a storage sink as --upstream-uri",
    ),
    "iceberg": Kind(
        "an Iceberg table",
        r"(?:^|/)metadata/(?:[^/]+\.metadata\.json(?:\.gz)?|snap-[^/]+\.avro|version-hint\.text)$",
        b"",
        _OF_LAKE,
    ),
    "delta": Kind("a Delta table", r"(?:^|/)_delta_log/\d{20}\.", b"", _OF_LAKE),
    "export": Kind(
        "an export by Dumpling or mydumper",
        r"-schema(?:-create|-view|-triggers?|-post|-sequence)?\.sql(?:\.\w+)?$",
        b"",
        "Give it as --dump, and the changefeed's folder as --upstream-uri",
    ),
    "compressed": Kind(
        "compressed files",
        r"(?:^|/)CDC[0-9_]+\.(?:csv|json)\.(?:gz|zst|snappy|sz|lz4|bz2|xz|zip)$",
        rb"\x1f\x8b|\x28\xb5\x2f\xfd|\xff\x06\x00\x00sNaPpY|\x04\x22\x4d\x18|BZh[1-9]|\xfd7zXZ|PK\x03\x04",
        "TiCDC compresses none: unpack them under the names that it wrote (`gunzip`, `zstd -d`), and stop what packs them",
    ),
    "parquet": Kind("Parquet files", r"\.parquet$", rb"PAR1", _TO_STORAGE),
    "avro": Kind("Avro files", r"\.avro$", rb"Obj\x01", _TO_STORAGE),
    "open": Kind(
        "messages of TiCDC's open-protocol",
        "",
        rb'.{0,16}\{"(?:ts":\d+,"(?:scm|t)"|[udp]":\{"[^"]*":\{"t":\d|q":".*?","t":\d)',
        _TO_STORAGE,
    ),
    "simple": Kind(
        "messages of TiCDC's simple protocol",
        "",
        rb'\s*\{\s*"version":\s*\d+,.*?"commitTs":\s*\d+,\s*"buildTs":',
        _TO_STORAGE,
    ),
    "debezium": Kind(
        "Debezium's JSON messages",
        "",
        # One lazy part in each branch: of hostile content each byte is looked at once.
        rb'\s*\{\s*(?:(?:"schema":.*?)?"payload":\s*\{|"(?:before|after|source)":.*?"op":)',
        _TO_STORAGE,
    ),
    # TiCDC's own messages have the same keys; they begin with these two.
    "canal": Kind(
        "canal's own messages (FlatMessage), without TiCDC's commit-ts",
        "",
        rb'\s*\{(?!\s*"id":\s*0,\s*"database":)(?!.*?"_tidb":)(?=.*?"isDdl":)(?=.*?"mysqlType":)',
        _TO_STORAGE,
    ),
}
"""Key → kind, the one that tells most first."""
_BY_PATH = re.compile(
    "|".join(f"(?P<{key}>{kind.path})" for key, kind in KINDS.items() if kind.path), re.DOTALL
)
_BY_CONTENT = {
    key: re.compile(kind.content, re.DOTALL) for key, kind in KINDS.items() if kind.content
}


def kind_of_path(path: str) -> str:
    """Return the key of the kind that a path shows, or the empty text."""
    found = _BY_PATH.search(path)
    return (found and found.lastgroup) or ""


def kind_of_content(content: bytes) -> str:
    """Return the key of the kind that a file's beginning shows, or the empty text."""
    return next((key for key, pattern in _BY_CONTENT.items() if pattern.match(content)), "")
