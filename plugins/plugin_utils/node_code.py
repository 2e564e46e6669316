# SPDX-License-Identifier: Apache-2.0
"""Packs the code that modules import on a node: the plugin's package, and the packages that it imports.

The plugin's package needs PyYAML, tomlkit, and with Python below 3.11 tomli. The archive has the controller's
packages, without their compiled parts. Equal packages give equal bytes. Python can also run the archive as the plugin's
command.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import pathlib
import sys
import zipfile
from collections.abc import Iterator

from .remembered import remembered
from .wheels import COLLECTION, WheelsError

_PACKAGES = ("yaml", "tomlkit", "tomli")
_MAIN = "import sys\nfrom node_device_plugin.cli.main import main\nsys.exit(main())\n"


@functools.cache
def archive(with_wire: bool = False) -> bytes:
    """Return the archive. Raises WheelsError if the controller does not have a package.

    with_wire: whether the archive has the part of the plugin's package that needs grpc and protobuf.
    """
    content = io.BytesIO()
    # Do not compress the archive: another zlib would give other bytes.
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        # A ZipInfo has a fixed time.
        packed.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for name, file in _sources():
            if with_wire or not name.startswith("node_device_plugin/wire/"):
                packed.writestr(zipfile.ZipInfo(name), file.read_bytes())
    return content.getvalue()


def sha256() -> str:
    """Return the archive's SHA-256 hash, as hex. One task of a run packs the archive for all."""
    return remembered(lambda: hashlib.sha256(archive()).hexdigest(), "code")


def _sources() -> Iterator[tuple[str, pathlib.Path]]:
    """Yield the path of each source file in the archive and on the controller."""
    for package in (COLLECTION / "plugin" / "node_device_plugin", *map(_directory, _PACKAGES)):
        for file in sorted(package.rglob("*.py")):
            yield str(file.relative_to(package.parent)), file


def _directory(package: str) -> pathlib.Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise WheelsError(
            f"the controller's Python ({sys.executable}) has no {package}: install requirements/controller.txt into "
            "Ansible's Python environment"
        )
    return pathlib.Path(found.submodule_search_locations[0])
