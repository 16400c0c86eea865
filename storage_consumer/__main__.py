"""``python -m storage_consumer`` is the program ``storage-consumer``."""

import sys

from storage_consumer.cli import main

if __name__ == "__main__":
    sys.exit(main())
