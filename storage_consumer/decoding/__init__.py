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
    return CanalJsonDecoder(upstream.terminator, allow_missing_commit_ts=upstream.allow_missing_commit_ts)
