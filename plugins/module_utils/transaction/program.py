# SPDX-License-Identifier: Apache-2.0
"""The program that systemd runs: ``program.zip run PREPARED`` and ``program.zip recover [--boot]``.

Runs on nodes: Python 3.9, standard library only. The archive is in the transaction's directory. Therefore a recovery at
boot needs no other file of ours, and the release that began a transaction also finishes it.
"""

from __future__ import annotations

import io
import sys
import zipfile

from ..ledger import LedgerConflict, sentence
from . import recovery
from .plan import Places

NAME = "program.zip"
_OURS = "ansible_collections.nodedevices.kubernetes.plugins.module_utils."
_PLACES = Places()
_USAGE = "usage: program.zip run PREPARED | recover [--boot]"


def main(arguments, places=_PLACES):
    """Run the program. Returns the exit code: 0 after success, 1 after an error, 2 for wrong arguments."""
    try:
        if arguments[:1] == ["run"] and len(arguments) == 2:
            recovery.run(places, arguments[1])
        elif arguments in (["recover"], ["recover", "--boot"]):
            recovery.recover(places, boot="--boot" in arguments)
        else:
            print(_USAGE, file=sys.stderr)
            return 2
    except (LedgerConflict, OSError) as error:
        print(sentence(error), file=sys.stderr)
        return 1
    return 0


def archive():
    """Return this program as a zip file of the loaded modules."""
    sources = {
        name: module.__spec__.loader.get_source(name)
        for name, module in list(sys.modules.items())
        if name.startswith(_OURS) and module.__spec__.submodule_search_locations is None
    }
    packages = {name[:position] for name in sources for position, letter in enumerate(name) if letter == "."}
    files = {"{}/__init__.py".format(package.replace(".", "/")): "" for package in packages}
    files.update({"{}.py".format(name.replace(".", "/")): source for name, source in sources.items()})
    files["__main__.py"] = f"import sys\nfrom {__name__} import main\nsys.exit(main(sys.argv[1:]))\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, source in sorted(files.items()):
            packed.writestr(name, source)
    return stream.getvalue()
