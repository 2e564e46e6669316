# SPDX-License-Identifier: Apache-2.0
"""What a node's virtual environment is made of: wheels for its Python and platform, gathered on the controller.

The plugin's own wheel is built from this collection, offline. The others are those that requirements/node.txt locks,
by hash; they come from a folder that is given, or from the package index by pip, once, into a cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

COLLECTION = pathlib.Path(__file__).resolve().parents[2]
LOCK = COLLECTION / "requirements" / "node.txt"
#: Goes into every environment's name; raised when the same wheels are to be laid out in another way.
LAYOUT = 1

# The manylinux profiles from before PEP 600, by the glibc 2.x that each stands for.
_LEGACY_MANYLINUX = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_OLDEST_GLIBC_MINOR = 5


class WheelsError(Exception):
    """Why the environment cannot be had, and what to do."""


class Target(NamedTuple):
    """The node's side."""

    python: tuple[int, int]
    #: As ``uname -m`` says: x86_64, aarch64.
    machine: str
    glibc: tuple[int, int]

    @property
    def name(self) -> str:
        return f"cp{self.python[0]}{self.python[1]}-{self.machine}"

    def platforms(self) -> list[str]:
        """The platform tags that it takes, best first (PEP 600)."""
        if self.glibc[0] != 2:
            raise WheelsError(f"glibc {self.glibc[0]}.{self.glibc[1]} is not known")
        names = []
        for minor in range(self.glibc[1], _OLDEST_GLIBC_MINOR - 1, -1):
            names.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _LEGACY_MANYLINUX:
                names.append(f"{_LEGACY_MANYLINUX[minor]}_{self.machine}")
        return names

    def tags(self) -> list[Tag]:
        """All wheel tags that it takes, best first."""
        platforms = self.platforms()
        return [
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, f"cp{self.python[0]}{self.python[1]}", platforms),
        ]


class Wheel(NamedTuple):
    """A wheel and what its bytes must be."""

    path: pathlib.Path
    sha256: str


class Requirement(NamedTuple):
    """A line of the lock."""

    name: str
    version: Version
    hashes: frozenset[str]


def read_lock(text: str) -> list[Requirement]:
    """The requirements of a file as ``pip-compile --generate-hashes`` writes it."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        if not match or not hashes:
            raise WheelsError(f"{LOCK}: not a pinned requirement with hashes: {line}")
        found.append(Requirement(canonicalize_name(match[1]), Version(match[2]), hashes))
    return found


def version() -> str:
    """The plugin's version."""
    return tomllib.loads((COLLECTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def environment_name(target: Target) -> str:
    """``<version>-<hash>``: the same for the same content and the same kind of node, without building anything."""
    total = hashlib.sha256(f"{LAYOUT} {target.name}\n".encode())
    total.update(_source_digest().encode())
    total.update(LOCK.read_bytes())
    return f"{version()}-{total.hexdigest()[:12]}"


def gather(target: Target, cache: pathlib.Path, wheelhouse: pathlib.Path | None) -> list[Wheel]:
    """The wheels of an environment, the plugin's own first.

    cache: a folder for what is built and fetched, made if it is missing.
    wheelhouse: a folder with the locked wheels; None fetches them.
    """
    with _locked(cache):
        own = _built(cache)
        requirements = read_lock(LOCK.read_text(encoding="utf-8"))
        if wheelhouse is not None:
            chosen, lacking = select(wheelhouse, requirements, target)
            if lacking:
                raise WheelsError(
                    f"{wheelhouse} lacks wheels for {target.name} (glibc {target.glibc[0]}.{target.glibc[1]}) with the "
                    f"hashes in {LOCK.name}: {_named(lacking)}"
                )
        else:
            store = cache / "wheels"
            chosen, lacking = select(store, requirements, target)
            if lacking:
                _fetch(store, target)
                chosen, lacking = select(store, requirements, target)
            if lacking:
                raise WheelsError(f"no wheel for {target.name} of {_named(lacking)}")
        return [own, *chosen]


def select(
    folder: pathlib.Path, requirements: list[Requirement], target: Target
) -> tuple[list[Wheel], list[Requirement]]:
    """For each requirement the folder's best wheel for the target whose hash is locked; and those that have none."""
    ranks = {tag: rank for rank, tag in enumerate(target.tags())}
    candidates: dict[tuple[str, Version], list[tuple[int, pathlib.Path]]] = {}
    for path in sorted(folder.glob("*.whl")):
        try:
            name, number, _build, tags = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None:
            candidates.setdefault((name, number), []).append((rank, path))
    chosen, lacking = [], []
    for requirement in requirements:
        for _rank, path in sorted(candidates.get((requirement.name, requirement.version), [])):
            digest = _file_digest(path)
            if digest in requirement.hashes:
                chosen.append(Wheel(path, digest))
                break
        else:
            lacking.append(requirement)
    return chosen, lacking


def pack(name: str, wheels: list[Wheel], cache: pathlib.Path) -> pathlib.Path:
    """One archive of the wheels: what is sent to a node."""
    archive = cache / "archives" / f"{name}.tar"
    with _locked(cache):
        if archive.exists():
            return archive
        archive.parent.mkdir(exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}")
        # Wheels are compressed already.
        with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as tar:
            for wheel in wheels:
                tar.add(wheel.path, arcname=wheel.path.name)
        partial.replace(archive)
    return archive


def _source_files() -> list[pathlib.Path]:
    """What the plugin's wheel is built from."""
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


def _file_digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(requirements: list[Requirement]) -> str:
    return ", ".join(f"{requirement.name} {requirement.version}" for requirement in requirements)


@contextlib.contextmanager
def _locked(cache: pathlib.Path) -> Iterator[None]:
    """Several hosts' workers want the same wheels at the same time: one makes them."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _built(cache: pathlib.Path) -> Wheel:
    """The plugin's own wheel, built if this source was not yet."""
    folder = cache / "built" / _source_digest()[:24]
    found = sorted(folder.glob("*.whl"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _run(
                [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", scratch],
                cwd=COLLECTION,
                missing="hatchling",
            )
            for path in pathlib.Path(scratch).glob("*.whl"):
                path.replace(folder / path.name)
        found = sorted(folder.glob("*.whl"))
    return Wheel(found[0], _file_digest(found[0]))


def _fetch(store: pathlib.Path, target: Target) -> None:
    python = f"{target.python[0]}.{target.python[1]}"
    abis = [f"cp{target.python[0]}{target.python[1]}", "abi3", "none"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--requirement", str(LOCK), "--dest", str(store)]
    command += ["--implementation", "cp", "--python-version", python]
    command += [argument for abi in abis for argument in ("--abi", abi)]
    command += [argument for platform in target.platforms() for argument in ("--platform", platform)]
    store.mkdir(exist_ok=True)
    _run(command, cwd=store, missing="pip")


def _run(command: list[str], cwd: pathlib.Path, missing: str) -> None:
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Timestamps inside the wheel: the same tree gives the same bytes.
        "SOURCE_DATE_EPOCH": "315532800",
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if f"No module named {missing}" in done.stderr:
        raise WheelsError(
            f"the Python that Ansible runs with on the controller ({sys.executable}) has no {missing}; install "
            f"requirements/controller.txt into its environment"
        )
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
    raise WheelsError(f"{' '.join(command[1:5])} failed on the controller: " + "\n".join(said))
