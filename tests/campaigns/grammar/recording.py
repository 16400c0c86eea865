"""What TiDB made of the forms, kept in a file: so that other servers can be held against it where there is no TiDB."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.source import Held, Moment, Source, plain

PATH = Path(__file__).with_name("source.json.xz")


def write(found: Sequence[tuple[Form, Source]], path: Path = PATH) -> None:
    """Keep what the source made of each form."""
    document = {form.name: _source(source) for form, source in found}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path = PATH) -> dict[str, Source]:
    """Name of a form → what the source made of it."""
    document: Mapping[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return {name: _of_source(entry) for name, entry in document.items()}


def _source(source: Source) -> Any:
    if source.refused:
        return {"refused": source.refused}
    return {
        "moments": [
            {
                "job": moment.job,
                **{
                    what: {table: _held(held) for table, held in tables.items()}
                    for what, tables in _sides(moment).items()
                },
            }
            for moment in source.moments
        ],
    }


def _sides(moment: Moment) -> Mapping[str, Mapping[str, Held]]:
    return {"left": moment.left, "filled": moment.filled}


def _held(held: Held) -> Any:
    return {
        "columns": held.columns,
        "collations": held.collations,
        "unique": sorted(held.unique),
        "rows": [[_shown(value) for value in row] for row in held.raw],
    }


def _shown(value: Any) -> Any:
    return {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _of_source(entry: Mapping[str, Any]) -> Source:
    if "refused" in entry:
        return Source(refused=entry["refused"])
    moments = tuple(
        Moment(
            job=one.get("job", ""),
            **{what: {table: _of_held(held) for table, held in one[what].items()} for what in ("left", "filled")},
        )
        for one in entry["moments"]
    )
    return Source(moments=moments)


def _of_held(entry: Mapping[str, Any]) -> Held:
    raw = tuple(tuple(_value(value) for value in row) for row in entry["rows"])
    return Held(
        columns=tuple((name, kind, null, key, extra) for name, kind, null, key, extra in entry["columns"]),
        collations=entry["collations"],
        unique=frozenset(tuple(key) for key in entry["unique"]),
        rows=tuple(sorted(tuple(map(plain, row)) for row in raw)),
        raw=raw,
    )


def _value(shown: Any) -> Any:
    return base64.b64decode(shown["b64"]) if isinstance(shown, dict) else shown
