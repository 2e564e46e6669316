"""Makes the modules beside bundle/build importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bundle"))
