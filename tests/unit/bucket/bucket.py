"""A bucket in memory with an inventory over it."""

from __future__ import annotations

from storage_consumer.bucket.inventory import Findings, Inventory
from storage_consumer.config.settings import DateSeparator
from tests.harness.twins.storage import MemoryStorage

V1, V2, V3 = 449000000000000001, 449000000000000002, 449000000000000003
NOW = 1 << 62


class Bucket(MemoryStorage):
    """A bucket with an inventory over it."""

    def __init__(self, date: DateSeparator | None = "none", *, partition_separator: bool | None = None) -> None:
        """Empty, of a changefeed with these separators; None where nobody told it."""
        super().__init__()
        self.inventory = Inventory(date, partition_separator=partition_separator, extension="csv")

    def schema(self, version: int, checksum: int = 1, table: str = "shop/t", content: bytes = b"{}") -> None:
        """Write a schema file."""
        self.put(f"{table}/meta/schema_{version}_{checksum:010d}.json", content)

    def old(self, version: int, table: str = "shop/t") -> None:
        """Write a schema file of the older layout."""
        self.put(f"{table}/{version}/schema.json", b"{}")

    def data(self, folder: str, *numbers: int, width: int = 20) -> None:
        """Write data files."""
        for number in numbers:
            self.put(f"shop/t/{folder}/CDC{number:0{width}d}.csv", b"rows")

    def look(self, *, full: bool = False, checkpoint: int = NOW) -> Findings:
        """List and take in."""
        known = (frozenset[str](), dict[str, str]()) if full else (self.inventory.closed, self.inventory.after)
        return self.inventory.observe(self.listing(*known), full=full, checkpoint=checkpoint)


def names(findings: Findings) -> list[str]:
    """The data files found, without their common beginning."""
    return [file.stored.path.removeprefix("shop/t/") for file in findings.data_files]
