"""(3) Decode: turn bytes into row changes.

Takes: the blocks of a data file, and the layout of its table version. Gives: row changes, one by
one or in batches. Touches the outside: no.
"""

from __future__ import annotations

from storage_consumer.config.settings import Upstream
from storage_consumer.decode.canal_files import CanalJsonDecoder
from storage_consumer.decode.csv_files import CsvDecoder
from storage_consumer.decode.decoder import Decoder
from storage_consumer.decode.export_files import ExportDecoder


def decoder_for(upstream: Upstream) -> Decoder:
    """Return the decoder for a bucket's protocol and options, or for the files of an export."""
    if upstream.protocol in ("dump-sql", "dump-csv"):
        return ExportDecoder(upstream.dump)
    lacks_commit_ts = upstream.allow_missing_commit_ts and not upstream.has_commit_ts
    decoder: Decoder = (
        CsvDecoder(upstream.csv)
        if upstream.protocol == "csv"
        else CanalJsonDecoder(upstream.csv.terminator, allow_missing_commit_ts=lacks_commit_ts)
    )
    decoder.skips = upstream.skip_commit_ts
    return decoder
