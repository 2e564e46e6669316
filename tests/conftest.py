"""Makes this checkout importable as the collection, in a folder of its own: nothing has to be set up before."""

from __future__ import annotations

import atexit
import pathlib
import shutil
import sys
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


def _visible_as_collection() -> None:
    directory = pathlib.Path(tempfile.mkdtemp(prefix="node-devices-collections-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    link = directory / "ansible_collections" / "nodedevices" / "kubernetes"
    link.parent.mkdir(parents=True)
    link.symlink_to(CHECKOUT, target_is_directory=True)
    sys.path.insert(0, str(directory))


_visible_as_collection()
