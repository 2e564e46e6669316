# SPDX-License-Identifier: Apache-2.0
"""Gathers the wheels of a node's virtual environment on the controller, for the node's platform.

The plugin's wheel is built offline from this collection. requirements/node.txt has the hashes of all other wheels
(see locked_wheels).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import locked_wheels
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.locked_wheels import Target as Target
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.locked_wheels import Wheel as Wheel
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.locked_wheels import WheelsError as WheelsError

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
LOCK = COLLECTION / "requirements" / "node.txt"
#: The directory of the locked wheels in Ansible's environment, if a bundle installed the controller
#: (packaging/bundle/install).
BUNDLED = pathlib.Path(sys.prefix) / "share" / "node-devices" / "wheels"
#: Part of every environment's name. Raise the number to install the same wheels in another layout.
LAYOUT = 1
#: Seconds to wait for another worker's downloads and builds.
_LONGEST_WAIT = 3600.0


def version() -> str:
    """Return the plugin's version."""
    return tomllib.loads((COLLECTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def environment_name(target: Target) -> str:
    """Return the environment's name ``<version>-<hash>``. The hash covers the sources, the lock and the target."""
    total = hashlib.sha256(f"{LAYOUT} {target.name}\n".encode())
    total.update(_source_digest().encode())
    total.update(LOCK.read_bytes())
    return f"{version()}-{total.hexdigest()[:12]}"


def gather(target: Target, cache: pathlib.Path, wheelhouse: pathlib.Path | None) -> list[Wheel]:
    """Return the wheels of an environment. The plugin's wheel is first.

    cache: directory for built and downloaded wheels, created if missing.
    wheelhouse: directory with the locked wheels; None for the bundle's directory, or else pip's download.
    """
    if wheelhouse is None and BUNDLED.is_dir():
        wheelhouse = BUNDLED
    with locked(cache):
        own = built(cache)
        if wheelhouse is not None:
            return [own, *locked_wheels.find(LOCK, target, wheelhouse, fetch=False)]
        return [own, *locked_wheels.find(LOCK, target, cache / "wheels")]


def pack(name: str, wheels: list[Wheel], cache: pathlib.Path) -> pathlib.Path:
    """Return the archive of all wheels for a node."""
    archive = cache / "archives" / f"{name}.tar"
    with locked(cache):
        if archive.exists():
            return archive
        archive.parent.mkdir(exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}")
        # Do not compress the archive, because wheels are already compressed.
        with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as tar:
            for wheel in wheels:
                tar.add(wheel.path, arcname=wheel.path.name, filter=_without_owner)
        partial.replace(archive)
    return archive


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the controller's user from a member. The format has no room for the large ids of a directory service."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _source_files() -> list[pathlib.Path]:
    """Return the source files of the plugin's wheel."""
    package = COLLECTION / "plugin" / "node_device_plugin"
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".pyi")]
    return sorted([*files, COLLECTION / "pyproject.toml", COLLECTION / "LICENSE"])


def _source_digest() -> str:
    total = hashlib.sha256()
    for path in _source_files():
        content = path.read_bytes()
        total.update(f"{path.relative_to(COLLECTION)} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


@contextlib.contextmanager
def locked(cache: pathlib.Path) -> Iterator[None]:
    """Lock the cache, so that only one worker builds or downloads the same files. Raises WheelsError."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = cache.stat()
    # Nodes run the cache's files as root, so no other user may write to the cache.
    if status.st_uid != os.geteuid():
        raise WheelsError(
            f"{cache}: belongs to uid {status.st_uid}, but Ansible runs as uid {os.geteuid()}: change its owner, or "
            "set another node_tools_cache"
        )
    if status.st_mode & 0o022:
        raise WheelsError(f"{cache}: other users can write to it: chmod -R go-w {cache}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(kernel_lock.locked(str(cache / ".lock"), limit=_LONGEST_WAIT))
        except OSError as error:
            raise WheelsError(f"{error.filename}: {error.strerror}") from error
        yield


def built(cache: pathlib.Path) -> Wheel:
    """Return the plugin's wheel, and build it if necessary. Raises WheelsError if someone changed a built wheel."""
    directory = cache / "built" / _source_digest()[:24]
    record = directory / "wheel.sha256"
    if not record.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            locked_wheels.run(
                [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", scratch],
                cwd=COLLECTION,
                missing="hatchling",
            )
            (path,) = pathlib.Path(scratch).glob("*.whl")
            digest = locked_wheels.file_digest(path)
            path.replace(directory / path.name)
            # Write the record last and atomically, so that the next run repeats an interrupted build.
            partial = pathlib.Path(scratch) / record.name
            partial.write_text(f"{digest}  {path.name}\n", encoding="utf-8")
            partial.replace(record)
    digest, name = record.read_text(encoding="utf-8").split()
    wheel = Wheel(directory / name, digest)
    if not wheel.path.exists() or locked_wheels.file_digest(wheel.path) != digest:
        raise WheelsError(f"{wheel.path.name} changed since it was built: rm -r {directory}")
    return wheel
