"""What the program does with each recorded bucket, held against what it did before: waves, statements, stored progress.

``python -m tests.campaigns waves`` compares all buckets with ``waves.tsv``, which has a digest for each bucket, way and kind of server.
``--into FOLDER`` writes the texts behind the digests: run it at two commits, and ``diff -r`` shows what is different. ``--accept``
writes the digests anew, for a change that is meant.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from tests.harness.corpora import CorpusSource, available, root
from tests.harness.waves import WAYS, trace

KNOWN = Path(__file__).with_name("waves.tsv")
VIEWS = (*((way, "mysql") for way in WAYS), ("whole", "mariadb"), ("whole", "tidb"))
"""Way and kind of server of each text."""


def texts(source: CorpusSource, scratch: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each view of a bucket; `scratch` is an empty folder."""
    corpus = source.open(scratch)
    for way, server_type in VIEWS:
        yield f"{way}-{server_type}", trace(corpus, way, scratch, server_type)


def digests(source: CorpusSource, into: Path | None = None) -> tuple[str, ...]:
    """Return the digest of each view of a bucket; write the texts below `into` if it is given."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in texts(source, Path(scratch)):
            if into is not None:
                path = into / f"{source}.{name}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found.append(sha256(text.encode()).hexdigest()[:12])
    return tuple(found)


def known() -> Mapping[str, tuple[str, ...]]:
    """Return the digests of before: bucket → one for each view."""
    rows = (line.split("\t") for line in KNOWN.read_text(encoding="utf-8").splitlines())
    return {name: tuple(rest) for name, *rest in rows}


def main() -> int:
    """Compare all buckets, or accept what they are now; return 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns waves", description=__doc__)
    parser.add_argument("--into", type=Path, help="write the texts to this folder")
    parser.add_argument("--accept", action="store_true", help="write the digests anew")
    parser.add_argument("--only", default="", help="only buckets whose name has this in it")
    asked = parser.parse_args()
    logging.disable()
    before = dict(known()) if KNOWN.exists() else {}
    different, number = [], 0
    for source in available(root()):
        if asked.only in str(source):
            number += 1
            now = digests(source, asked.into)
            if before.get(str(source)) != now:
                different.append(str(source))
                print(f"{source} differs", flush=True)
            before[str(source)] = now
    if asked.accept:
        KNOWN.write_text(
            "".join("\t".join((name, *row)) + "\n" for name, row in sorted(before.items())), encoding="utf-8"
        )
    print(f"{number} buckets, {len(different)} differ")
    return int(bool(different) and not asked.accept)


if __name__ == "__main__":
    sys.exit(main())
