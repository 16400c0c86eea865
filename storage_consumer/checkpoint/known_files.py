"""What the state remembers of files: how far each stream is finished, and digests of finished files, many to a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import Connection

from storage_consumer.checkpoint.tables import StateTables
from storage_consumer.downstream.batches import batched
from storage_consumer.plan.finished_files import Finished

_CHUNK = 1_000
"""Rows per statement."""


def known_files(connection: Connection, tables: StateTables) -> Mapping[str, Finished]:
    """Return stream → how far it is finished."""
    digests = defaultdict[str, dict[int, bytes]](dict)
    for row in connection.execute(select(tables.digests)):
        digests[row.stream][row.chunk] = bytes(row.digests)
    return {
        row.stream: Finished(upto=row.done_upto, left_out=row.left_out, digests=digests.get(row.stream, {}))
        for row in connection.execute(select(tables.files))
    }


def put_known_files(connection: Connection, tables: StateTables, streams: Mapping[str, Finished]) -> None:
    """Store the streams that moved, and those chunks of their digests that changed."""
    rows = [{"stream": name, "done_upto": done.upto, "left_out": done.left_out} for name, done in streams.items()]
    progress = insert(tables.files)
    new = progress.inserted
    for some in batched(rows, _CHUNK):
        connection.execute(progress.on_duplicate_key_update(done_upto=new.done_upto, left_out=new.left_out), some)
    # Where the chunks to store are all that there is, the stored ones go first.
    for names in batched((name for name, done in streams.items() if done.replaces), _CHUNK):
        connection.execute(delete(tables.digests).where(tables.digests.c.stream.in_(names)))
    chunks = [
        {"stream": name, "chunk": chunk, "digests": digests}
        for name, done in streams.items()
        for chunk, digests in done.digests.items()
    ]
    stored = insert(tables.digests)
    for some in batched(chunks, _CHUNK):
        connection.execute(stored.on_duplicate_key_update(digests=stored.inserted.digests), some)
