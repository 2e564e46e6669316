# SPDX-License-Identifier: Apache-2.0
"""Makes the code importable that controller and node share: the plugin's package, and the packages that it imports.

The code is one archive, which the controller builds and names by its hash. Role node_tools keeps the archive on the
node. If the node does not have it, the action sends a temporary copy (plugin_utils/node_action.py).
"""

from __future__ import annotations

import os
import sys
import tempfile

from .ledger import DIRECTORY, sentence, sha256
from .node_device_plugin.support import bounded_reads
from .node_device_plugin.support.new_file import naming

#: The directory of the kept archives, below the ledger's directory. Only root can read it.
NAME = "code"
#: The argument ``code`` of a module that imports the code; set by the action.
ARGUMENT = {"type": "dict", "options": {"sha256": {"type": "str", "required": True}, "path": {"type": "path"}}}
# The hash and the bytes of each loaded archive, and the file from which the imports read, which stays open.
_loaded = []


def path_of(digest, ledger=DIRECTORY):
    """Return the path of a kept archive. digest: its SHA-256 hash, as hex. ledger: the ledger's directory."""
    return os.path.join(ledger, NAME, f"{digest}.zip")


def loaded():
    """Return the hash and the bytes of the archive that this process has loaded; None if it has loaded none."""
    return next((each[:2] for each in reversed(_loaded)), None)


def load(code):
    """Make the code importable. Returns whether the node has the code. Raises OSError on a full disk.

    code: a module's argument ``code``. A user may replace a temporary copy. Therefore the bytes are read once, and the
    imports use exactly the bytes that were hashed, in a file without a name.
    """
    places = [path_of(code["sha256"]), code.get("path")]
    content = next((content for content in map(_read, places) if content and sha256(content) == code["sha256"]), None)
    if content is None:
        return False
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the imports read it)
    with naming(tempfile.gettempdir()):
        file.write(content)
        file.flush()
    _loaded.append((code["sha256"], content, file))
    sys.path.insert(0, f"/proc/self/fd/{file.fileno()}")
    return True


def load_for(module):
    """Make the code importable for a module. Without the code, the module exits, and the action sends the code."""
    # Check the version, because Ansible accepts an older Python on nodes.
    if sys.version_info < (3, 9):  # noqa: UP036
        found = "%d.%d" % sys.version_info[:2]
        module.fail_json(
            msg=f"the node's Python is {found}, but 3.9 or later is required: set ansible_python_interpreter"
        )
    code = module.params["code"]
    try:
        if load(code):
            return
    except OSError as error:
        module.fail_json(msg=f"the plugin's code cannot be loaded: {sentence(error)}")
    if code.get("path"):
        module.fail_json(
            msg="the plugin's code arrived with another SHA-256 than the one that was sent, so it was not loaded: "
            "run again"
        )
    module.exit_json(changed=False, code_missing=True)


def _read(path):
    """Return a regular file's bytes; None if it cannot be read."""
    try:
        return bounded_reads.read_file(path, follow=False) if path else None
    except OSError:
        return None
