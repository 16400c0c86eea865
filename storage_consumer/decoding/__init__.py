"""(3) Decode: bytes to row changes."""

from __future__ import annotations

from storage_consumer.config.settings import Upstream
from storage_consumer.decoding.canal_json import CanalJsonDecoder
from storage_consumer.decoding.csv import CsvDecoder
from storage_consumer.decoding.decoder import Decoder


def decoder_for(upstream: Upstream) -> Decoder:
    """The decoder for a bucket's protocol and options."""
    if upstream.protocol == "csv":
        return CsvDecoder(upstream.csv)
    untimed = upstream.allow_missing_commit_ts and not upstream.has_commit_ts
    return CanalJsonDecoder(upstream.terminator, allow_missing_commit_ts=untimed)
