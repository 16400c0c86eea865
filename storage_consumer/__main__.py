"""Run ``storage-consumer``, by ``python -m storage_consumer`` or ``spark-submit``."""

import sys
from pathlib import Path

# Python searches a script's folder first, where this package's modules could shadow others: search
# its parent instead.
if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from storage_consumer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
