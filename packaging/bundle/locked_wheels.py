# SPDX-License-Identifier: Apache-2.0
"""Finds the wheels of a lock file (``requirements/*.txt``) for a Python and a machine.

The wheels come from a given directory, or pip downloads them once from its configured index. A wheel's file name shows
which machines can use the wheel. The lock file must have the wheel's hash.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.wheels import Wheel, WheelsError, file_digest
from packaging.markers import InvalidMarker, Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

# Maps the minor version of glibc 2.x to the manylinux profile from before PEP 600 that requires it.
_LEGACY_MANYLINUX = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_OLDEST_GLIBC_MINOR = 5


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
    requirements = needed(lock, target)
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
    names = sorted(path.name for path in directory.glob("*.whl"))
    chosen, missing = choose(names, lambda name: file_digest(directory / name), requirements, target)
    return [Wheel(directory / name, digest) for name, digest in chosen.items()], missing


def choose(
    names: Iterable[str], digest_of: Callable[[str], str], requirements: list[Requirement], target: Target
) -> tuple[dict[str, str], list[Requirement]]:
    """Return the best file name for each requirement with its SHA-256, and the requirements without a wheel."""
    ranks = {tag: rank for rank, tag in enumerate(target.tags())}
    candidates: dict[tuple[str, Version], list[tuple[int, str]]] = {}
    for file in names:
        try:
            name, number, _build, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            candidates.setdefault((name, number), []).append((rank, file))
    chosen, missing = {}, []
    for requirement in requirements:
        for _rank, file in sorted(candidates.get((requirement.name, requirement.version), [])):
            digest = digest_of(file)
            if digest in requirement.hashes:
                chosen[file] = digest
                break
        else:
            missing.append(requirement)
    return chosen, missing


def needed(lock: pathlib.Path, target: Target) -> list[Requirement]:
    """Return the requirements of a lock file that apply to the target."""
    environment = target.markers()
    return [entry for entry in read_lock(lock) if entry.marker is None or entry.marker.evaluate(environment)]


def _named(requirements: list[Requirement]) -> str:
    return ", ".join(f"{requirement.name} {requirement.version}" for requirement in requirements)


def _fetch(store: pathlib.Path, requirements: list[Requirement], target: Target) -> None:
    pinned = {f"{entry.name}=={entry.version}": entry.hashes for entry in requirements}
    wheels.download(store, pinned, target.python, target.platforms())
