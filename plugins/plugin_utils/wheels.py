# SPDX-License-Identifier: Apache-2.0
"""Gathers the wheels of a node's virtual environment on the controller, for the target that the node has chosen.

The plugin's wheel is built offline from this collection. The table has the file names and hashes of all other wheels
for each target. A target is a Python version and a machine, such as cp311-x86_64. The wheels come from a given
directory, or pip downloads them once from its configured index.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..module_utils import kernel_lock
from .remembered import remembered

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
#: The table of wheel targets. tools/lock_wheels generates it from node.txt.
TABLE = COLLECTION / "requirements" / "node-wheels.json"
#: The directory of the locked wheels in Ansible's environment, if a bundle installed the controller
#: (packaging/bundle/install).
BUNDLED = pathlib.Path(sys.prefix) / "share" / "node-devices" / "wheels"
#: Part of every environment's name. Raise the number to install the same wheels in another layout.
LAYOUT = 1
#: Seconds to wait for another worker's downloads and builds.
_LONGEST_WAIT = 3600.0


class WheelsError(Exception):
    """The wheels are not available. The message says why, and how to fix this."""


class Wheel(NamedTuple):
    """A wheel file and its SHA-256."""

    path: pathlib.Path
    sha256: str


def version() -> str:
    """Return the plugin's version."""
    return tomllib.loads((COLLECTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def table() -> dict[str, Any]:
    """Return the table: by target, the oldest ``glibc`` and the ``wheels``, file name to SHA-256."""
    targets: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return targets


def targets() -> dict[str, Any]:
    """Return what a node chooses from: by target, the oldest ``glibc`` and the name of the ``environment``.

    The name is ``<version>-<hash>``. The hash covers the sources, the target and its wheels.
    """
    release, sources = version(), _source_digest()
    return {
        target: {"glibc": each["glibc"], "environment": f"{release}-{_digest(target, sources, each['wheels'])[:12]}"}
        for target, each in table().items()
    }


def targets_of_run() -> dict[str, Any]:
    """Return `targets` of the sources as the first task of this run found them."""
    found: dict[str, Any] = json.loads(remembered(lambda: json.dumps(targets()), "targets"))
    return found


def _digest(target: str, sources: str, wheels: Mapping[str, str]) -> str:
    described = f"{LAYOUT} {target}\n{sources}\n{json.dumps(wheels, sort_keys=True)}"
    return hashlib.sha256(described.encode()).hexdigest()


def gather(target: str, cache: pathlib.Path, wheelhouse: pathlib.Path | None) -> list[Wheel]:
    """Return the wheels of an environment.

    cache: directory for built and downloaded wheels, created if missing.
    wheelhouse: directory with the locked wheels; None for the bundle's directory, or else pip's download.
    """
    if wheelhouse is None and BUNDLED.is_dir():
        wheelhouse = BUNDLED
    with locked(cache):
        return [built(cache), *find(target, wheelhouse or cache / "wheels", fetch=wheelhouse is None)]


def find(target: str, directory: pathlib.Path, fetch: bool = True) -> list[Wheel]:
    """Return a target's locked wheels. Raises WheelsError if a wheel is missing. fetch: whether pip may download."""
    wanted = [Wheel(directory / name, digest) for name, digest in table()[target]["wheels"].items()]
    missing = _missing(wanted)
    if missing and fetch:
        _fetch(target, directory, missing)
        missing = _missing(wanted)
    if missing:
        names = ", ".join(wheel.path.name for wheel in missing)
        raise WheelsError(f"{directory} has no wheels for {target} with the hashes in {TABLE.name}: {names}")
    return wanted


def _missing(wanted: Iterable[Wheel]) -> list[Wheel]:
    return [wheel for wheel in wanted if not wheel.path.is_file() or file_digest(wheel.path) != wheel.sha256]


def _fetch(target: str, directory: pathlib.Path, wanted: Iterable[Wheel]) -> None:
    pinned, platforms = {}, set()
    for wheel in wanted:
        name, version, *_build, _python, _abi, of_platform = wheel.path.stem.split("-")
        pinned[f"{name}=={version}"] = [wheel.sha256]
        platforms.update(of_platform.split("."))
    python = target.partition("-")[0].removeprefix("cp")
    download(directory, pinned, (int(python[0]), int(python[1:])), sorted(platforms - {"any"}))


def download(
    store: pathlib.Path, pinned: Mapping[str, Iterable[str]], python: tuple[int, int], platforms: Iterable[str]
) -> None:
    """Let pip download wheels. Raises WheelsError.

    pinned: maps requirements such as ``grpcio==1`` to their SHA-256 hashes. python, platforms: of the machine that will
    use the wheels.
    """
    store.mkdir(parents=True, exist_ok=True)
    abis = [f"cp{python[0]}{python[1]}", "abi3", "none"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as wanted:
        for requirement, digests in pinned.items():
            wanted.write(" ".join([requirement, *(f"--hash=sha256:{digest}" for digest in sorted(digests))]) + "\n")
        wanted.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--requirement", wanted.name, "--dest", str(store)]
        command += ["--implementation", "cp", "--python-version", f"{python[0]}.{python[1]}"]
        command += [argument for abi in abis for argument in ("--abi", abi)]
        command += [argument for platform in platforms for argument in ("--platform", platform)]
        run(command, cwd=store, missing="pip")


def file_digest(path: pathlib.Path) -> str:
    """Return a file's SHA-256 as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(command: list[str], cwd: pathlib.Path, missing: str) -> None:
    """Run a Python program in the controller's environment. Raises WheelsError if the program fails.

    missing: the program's module. If the environment does not have this module, the error says so.
    """
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Fixed timestamps make the wheel's bytes reproducible.
        "SOURCE_DATE_EPOCH": "315532800",
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if f"No module named {missing}" in done.stderr:
        raise WheelsError(
            f"the controller's Python ({sys.executable}) has no {missing}: install requirements/controller.txt into "
            "Ansible's Python environment"
        )
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
    raise WheelsError(f"{' '.join(command[1:5])} failed on the controller: " + "\n".join(said))


def packed(wheels: Iterable[Wheel]) -> bytes:
    """Return the archive of all wheels for a node."""
    content = io.BytesIO()
    # Do not compress the archive, because wheels are already compressed.
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for wheel in wheels:
            # A new member belongs to root: the format has no room for the large ids of a directory service.
            member, data = tarfile.TarInfo(wheel.path.name), wheel.path.read_bytes()
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def _source_digest() -> str:
    """Return the hash of the source files of the plugin's wheel."""
    package = COLLECTION / "plugin" / "node_device_plugin"
    files = [path for path in package.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".pyi")]
    total = hashlib.sha256()
    for path in sorted([*files, *(COLLECTION / name for name in ("pyproject.toml", "LICENSE", "plugin/README.md"))]):
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
    try:
        lock = kernel_lock.locked(str(cache / ".lock"), limit=_LONGEST_WAIT)
    except OSError as error:
        raise WheelsError(f"{error.filename}: {error.strerror}") from error
    with lock:
        yield


def built(cache: pathlib.Path) -> Wheel:
    """Return the plugin's wheel, and build it if necessary. Raises WheelsError if someone changed a built wheel."""
    directory = cache / "built" / _source_digest()[:24]
    record = directory / "wheel.sha256"
    if not record.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            run(
                [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", scratch],
                cwd=COLLECTION,
                missing="hatchling",
            )
            (path,) = pathlib.Path(scratch).glob("*.whl")
            digest = file_digest(path)
            path.replace(directory / path.name)
            # Write the record last and atomically, so that the next run repeats an interrupted build.
            partial = pathlib.Path(scratch) / record.name
            partial.write_text(f"{digest}  {path.name}\n", encoding="utf-8")
            partial.replace(record)
    digest, name = record.read_text(encoding="utf-8").split()
    wheel = Wheel(directory / name, digest)
    if not wheel.path.exists() or file_digest(wheel.path) != digest:
        raise WheelsError(f"{wheel.path.name} changed since it was built: rm -r {directory}")
    return wheel
