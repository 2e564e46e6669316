# SPDX-License-Identifier: Apache-2.0
"""Packs the plugin's source, so that a node without the plugin can run the command ``scan``.

The node's Python runs the archive. The command needs the standard library and PyYAML. Therefore the archive also has
the controller's PyYAML, without its compiled part.
"""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Iterator

import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.wheels import COLLECTION

_MAIN = "import sys\nfrom node_device_plugin.cli.main import main\nsys.exit(main())\n"
#: The package to omit. It needs grpc and protobuf, and the command does not use it.
_WITHOUT = "wire"


def write(path: pathlib.Path) -> None:
    """Write the archive to ``path``."""
    # Reproducible packages have files of 1970, and a ZIP archive has no time before 1980.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr("__main__.py", _MAIN)
        for name, file in _sources():
            archive.write(file, name)


def _sources() -> Iterator[tuple[str, pathlib.Path]]:
    """Return the path of each source file in the archive and on the controller."""
    for package in (COLLECTION / "plugin" / "node_device_plugin", pathlib.Path(yaml.__file__).parent):
        for file in sorted(package.rglob("*.py")):
            inside = file.relative_to(package.parent)
            if inside.parts[1] != _WITHOUT:
                yield str(inside), file
