"""``python -m node_device_plugin``."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
