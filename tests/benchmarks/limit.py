r"""The limit: how fast the server takes the final rows when all the work before it is done already.

LOAD DATA LOCAL over two connections, rows in the order of their keys, a commit after each chunk of 10,000.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from storage_consumer.config.settings import Downstream
from storage_consumer.target.connection import connect
from tests.benchmarks.bucket import Bucket, FinalTable
from tests.benchmarks.shapes import DATABASE
from tests.harness.servers import DatabaseServer

CONNECTIONS = 2
_LIMIT_DATABASE = f"{DATABASE}_limit"


class WrongResult(Exception):
    """A database does not hold the final state."""


def load_final_state(bucket: Bucket, server: DatabaseServer) -> float:
    """Load the final state into empty tables of the same structure; the seconds, without those for reading the chunks from disk."""
    make_tables(bucket, server)
    chunks = [(table.name, chunk.read_bytes()) for table in bucket.final for chunk in table.chunks]
    shares = [chunks[first::CONNECTIONS] for first in range(CONNECTIONS)]
    began = time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for loaded in [threads.submit(_load, server, share) for share in shares]:
            loaded.result()
    seconds = time.monotonic() - began
    check(bucket.final, server, bucket.order.shape.checksum, _LIMIT_DATABASE)
    server.query(f"DROP DATABASE {_LIMIT_DATABASE}")
    return seconds


def make_tables(bucket: Bucket, server: DatabaseServer) -> float:
    """Make the tables in place of all there is, one after the other; the seconds."""
    server.drop_all()
    began = time.monotonic()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {_LIMIT_DATABASE} COLLATE utf8mb4_bin")
        for table in bucket.final:
            cursor.execute(f"CREATE TABLE {_LIMIT_DATABASE}.{table.name} ({bucket.order.shape.sql})")
    return time.monotonic() - began


def _load(server: DatabaseServer, chunks: Iterable[tuple[str, bytes]]) -> None:
    with connect(Downstream(port=server.port), "") as connection:
        for table, rows in chunks:
            statement = (
                f"LOAD DATA LOCAL INFILE 'rows' INTO TABLE {_LIMIT_DATABASE}.{table} CHARACTER SET binary "
                "FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'"
            )
            _, warnings = connection.load(statement, rows)
            if warnings:
                raise WrongResult(f"LOAD DATA into {table} gave {warnings} warnings")


def check(final: Iterable[FinalTable], server: DatabaseServer, checksum: str, database: str = DATABASE) -> None:
    """Raise `WrongResult` unless every table has the final rows, by number and by checksum."""
    for table in final:
        query = f"SELECT COUNT(*), COALESCE(SUM({checksum}), 0) FROM {database}.{table.name}"
        rows, found = (int(value) for value in server.query(query)[0])
        if (rows, found) != (table.rows, table.checksum):
            raise WrongResult(
                f"{database}.{table.name} has {rows} rows with checksum {found}, not {table.rows} with {table.checksum}"
            )
