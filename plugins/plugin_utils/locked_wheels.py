# SPDX-License-Identifier: Apache-2.0
"""Finds the wheels of a lock file (``requirements/*.txt``) for a node's Python and machine.

The wheels come from a given directory, or pip downloads them once from its configured index. A wheel's file name shows
which nodes can use the wheel. The lock file must have the wheel's hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

# Ignore a missing packaging, because ansible-test imports every file without ansible-core's requirements.
with contextlib.suppress(ImportError):
    from packaging.markers import InvalidMarker, Marker
    from packaging.tags import Tag, compatible_tags, cpython_tags
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
    from packaging.version import Version

# Maps the minor version of glibc 2.x to the manylinux profile from before PEP 600 that requires it.
_LEGACY_MANYLINUX = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_OLDEST_GLIBC_MINOR = 5


class WheelsError(Exception):
    """The wheels are not available. The message says why, and how to fix this."""


class Target(NamedTuple):
    """A node's CPython version, machine and glibc version. The operating system is Linux."""

    python: tuple[int, int]
    #: The output of ``uname -m``, for example x86_64 or aarch64.
    machine: str
    glibc: tuple[int, int]

    @property
    def name(self) -> str:
        return f"cp{self.python[0]}{self.python[1]}-{self.machine}"

    def platforms(self) -> list[str]:
        """Return the platform tags (PEP 600) of the target, best first. Raises WheelsError if glibc is not 2.x."""
        if self.glibc[0] != 2:
            raise WheelsError(f"glibc {self.glibc[0]}.{self.glibc[1]} is not supported")
        names = []
        for minor in range(self.glibc[1], _OLDEST_GLIBC_MINOR - 1, -1):
            names.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _LEGACY_MANYLINUX:
                names.append(f"{_LEGACY_MANYLINUX[minor]}_{self.machine}")
        return names

    def tags(self) -> list[Tag]:
        """Return all wheel tags that the target accepts, best first."""
        platforms = self.platforms()
        return [
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, f"cp{self.python[0]}{self.python[1]}", platforms),
        ]

    def markers(self) -> dict[str, str]:
        """Return the target's environment markers (PEP 508)."""
        version = f"{self.python[0]}.{self.python[1]}"
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": "linux",
        }


class Wheel(NamedTuple):
    """A wheel file and its SHA-256."""

    path: pathlib.Path
    sha256: str


class Requirement(NamedTuple):
    """A line of the lock file."""

    name: str
    version: Version
    hashes: frozenset[str]
    #: The condition under which the requirement applies; None for always.
    marker: Marker | None = None


def read_lock(lock: pathlib.Path) -> list[Requirement]:
    """Return the requirements in an output of ``pip-compile`` or ``uv pip compile`` with hashes. Raises WheelsError."""
    found = []
    for line in lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(?:;(.*?))?(?=\s--|$)", line)
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        if not match or not hashes:
            raise WheelsError(f"{lock}: not a pinned requirement with hashes: {line}")
        try:
            marker = Marker(match[3].strip()) if match[3] else None
        except InvalidMarker as error:
            raise WheelsError(f"{lock}: {match[1]}: not an environment marker: {match[3].strip()}") from error
        found.append(Requirement(canonicalize_name(match[1]), Version(match[2]), hashes, marker))
    return found


def find(lock: pathlib.Path, target: Target, directory: pathlib.Path, fetch: bool = True) -> list[Wheel]:
    """Return the locked wheels for the target. Raises WheelsError if a wheel is missing.

    fetch: whether pip may download wheels.
    """
    requirements = _needed(lock, target)
    chosen, missing = select(directory, requirements, target)
    if missing and fetch:
        _fetch(directory, missing, target)
        chosen, missing = select(directory, requirements, target)
    if missing:
        raise WheelsError(
            f"{directory} has no wheels for {target.name} (glibc {target.glibc[0]}.{target.glibc[1]}) with the hashes "
            f"in {lock.name}: {_named(missing)}"
        )
    return chosen


def select(
    directory: pathlib.Path, requirements: list[Requirement], target: Target
) -> tuple[list[Wheel], list[Requirement]]:
    """Return each requirement's best wheel with a locked hash, and the requirements without such a wheel."""
    ranks = {tag: rank for rank, tag in enumerate(target.tags())}
    candidates: dict[tuple[str, Version], list[tuple[int, pathlib.Path]]] = {}
    for path in sorted(directory.glob("*.whl")):
        try:
            name, number, _build, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            candidates.setdefault((name, number), []).append((rank, path))
    chosen, missing = [], []
    for requirement in requirements:
        for _rank, path in sorted(candidates.get((requirement.name, requirement.version), [])):
            digest = file_digest(path)
            if digest in requirement.hashes:
                chosen.append(Wheel(path, digest))
                break
        else:
            missing.append(requirement)
    return chosen, missing


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


def _needed(lock: pathlib.Path, target: Target) -> list[Requirement]:
    environment = target.markers()
    return [entry for entry in read_lock(lock) if entry.marker is None or entry.marker.evaluate(environment)]


def _named(requirements: list[Requirement]) -> str:
    return ", ".join(f"{requirement.name} {requirement.version}" for requirement in requirements)


def _fetch(store: pathlib.Path, requirements: list[Requirement], target: Target) -> None:
    python = f"{target.python[0]}.{target.python[1]}"
    abis = [f"cp{target.python[0]}{target.python[1]}", "abi3", "none"]
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as wanted:
        for entry in requirements:
            hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(entry.hashes))
            wanted.write(f"{entry.name}=={entry.version} {hashes}\n")
        wanted.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--requirement", wanted.name, "--dest", str(store)]
        command += ["--implementation", "cp", "--python-version", python]
        command += [argument for abi in abis for argument in ("--abi", abi)]
        command += [argument for platform in target.platforms() for argument in ("--platform", platform)]
        run(command, cwd=store, missing="pip")
