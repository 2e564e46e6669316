"""Makes the modules beside image/build importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "image"))
