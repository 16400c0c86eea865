"""Changes of recorded buckets as canal's FlatMessages, against the messages that TiCDC itself wrote."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from storage_consumer.feed.records import Change
from storage_consumer.feed.render_flat import flat_messages
from tests.harness.corpora import CorpusSource, available
from tests.harness.feeds import feed_of, settings_of

PLAIN = ("json", "json-part-off", "json-restart", "json-dayroll", "nodes-json")
"""Variants without an option that changes what is in a message, in UTC."""
SOURCES = [each for each in available() if each.variant in PLAIN]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_messages_are_those_of_ticdc(source: CorpusSource, tmp_path: Path) -> None:
    """Names, types, codes, values and times are the same, each one in the line of the file that the change names."""
    corpus = source.open(tmp_path)
    corpus.materialise(corpus.cuts[-1], tmp_path / "bucket")
    line = flat_messages("canal-json", lambda: 0)
    compared = 0
    for event in feed_of(settings_of(corpus, tmp_path, tmp_path / "bucket")).events(0):
        if not isinstance(event, Change):
            continue
        theirs = json.loads((tmp_path / "bucket" / event.file).read_text(encoding="utf-8").splitlines()[event.row - 1])
        ours = json.loads(line(event))
        # An update that gives a row another key is told as a delete and an insert.
        if ours["type"] != theirs["type"]:
            assert theirs["type"] == "UPDATE"
            continue
        compared += 1
        assert essence(ours) == essence(theirs)
    assert compared


def essence(message: dict[str, Any]) -> dict[str, Any]:
    """What has to be the same; a FLOAT by its value, and no ZEROFILL, which no schema file tells."""
    types = {name: text.removesuffix(" zerofill") for name, text in message["mysqlType"].items()}
    kept = ("database", "table", "pkNames", "isDdl", "type", "es", "sqlType")
    images = {
        part: [{name: _value(types[name], text) for name, text in image.items()} for image in message[part] or ()]
        for part in ("data", "old")
    }
    return {name: message[name] for name in kept} | {"mysqlType": types} | images


def _value(kind: str, text: str | None) -> str | bytes | None:
    return struct.pack(">f", float(text)) if text is not None and kind.startswith("float") else text
