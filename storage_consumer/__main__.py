"""``python -m storage_consumer`` is the program ``storage-consumer``; as a file it is what ``spark-submit`` takes."""

import sys
from pathlib import Path

if not __package__:  # run as a file: then Python looks for modules beside it first, among the package's own
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from storage_consumer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
