"""Fills a folder step by step with a recorded bucket, as TiCDC would: data and schema files first, ``metadata`` last."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Deliver one cut after another, and then end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, required=True, help="folder with corpus.json and tree/"
    )
    parser.add_argument("--bucket", type=Path, required=True, help="folder to fill, which exists")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two steps")
    asked = parser.parse_args()
    facts = json.loads((asked.corpus / "corpus.json").read_text(encoding="utf-8"))
    for number, cut in enumerate(facts["cuts"]):
        if number:
            time.sleep(asked.pause)
        arrived = deliver(asked.corpus / "tree", asked.bucket, cut)
        print(
            f"step {number + 1}: {arrived} files arrive, checkpoint {cut['checkpoint_ts']}",
            flush=True,
        )


def deliver(tree: Path, bucket: Path, cut: dict[str, Any]) -> int:
    """Copy the files of a cut that are not in the bucket yet, then its checkpoint; return their number."""
    new = [path for path in cut["files"] if path != "metadata" and not (bucket / path).exists()]
    for path in new:
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / path, bucket / path)
    waiting = bucket / "metadata.tmp"
    waiting.write_text(json.dumps({"checkpoint-ts": cut["checkpoint_ts"]}), encoding="utf-8")
    waiting.replace(bucket / "metadata")
    return len(new)


if __name__ == "__main__":
    main()
