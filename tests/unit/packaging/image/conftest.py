"""Makes the modules beside packaging/image/build importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "packaging" / "image"))
