"""One run in a process of its own: ``python -m tests.benchmarks.cold UPSTREAM DOWNSTREAM CONFIG`` prints its times as JSON.

UPSTREAM and DOWNSTREAM are URIs, CONFIG is a changefeed's configuration as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from storage_consumer import Consumer
from storage_consumer.config.settings import Tuning
from storage_consumer.spark.session import open_session


def main() -> None:
    """Start Spark, then run one round."""
    upstream, downstream, config = sys.argv[1:]
    began = time.monotonic()
    session, _ = open_session(Tuning())
    started = time.monotonic()
    with Consumer(upstream_uri=upstream, downstream_uri=downstream, config=json.loads(config)) as consumer:
        summary = consumer.run_once()
    seconds = time.monotonic() - started
    session.stop()
    print(json.dumps({"session": started - began, "seconds": seconds, "rows": summary.rows}))


if __name__ == "__main__":
    main()
