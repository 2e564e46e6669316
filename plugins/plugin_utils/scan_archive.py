# SPDX-License-Identifier: Apache-2.0
"""Packs the plugin's source, so that a node can run a command that it does not have.

A node without the plugin runs ``scan``. The command needs the standard library and PyYAML. Therefore the archive also
has the controller's PyYAML, without its compiled part. A node with an earlier release of the plugin runs any command of
this release, with the packages of the earlier one.
"""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Iterator

import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.wheels import COLLECTION

_MAIN = "import sys\nfrom node_device_plugin.cli.main import main\nsys.exit(main())\n"
#: The package that ``scan`` does not use. It needs grpc and protobuf.
_WITHOUT = "wire"


def write(path: pathlib.Path, only_scan: bool = True) -> None:
    """Write the archive to ``path``. only_scan: whether the archive has the command ``scan`` alone."""
    # Reproducible packages have files of 1970, and a ZIP archive has no time before 1980.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr("__main__.py", _MAIN)
        for name, file in _sources(_WITHOUT if only_scan else ""):
            archive.write(file, name)


def _sources(without: str) -> Iterator[tuple[str, pathlib.Path]]:
    """Return the path of each source file in the archive and on the controller."""
    for package in (COLLECTION / "plugin" / "node_device_plugin", pathlib.Path(yaml.__file__).parent):
        for file in sorted(package.rglob("*.py")):
            inside = file.relative_to(package.parent)
            if inside.parts[1] != without:
                yield str(inside), file
