"""Prepares the files that the image adds to its base:

    /opt/node-device-plugin/           the plugin's virtual environment, as role node_tools creates it on a node
    /usr/local/bin/node-device-plugin  the command
    <standard library>/**/*.pyc        bytecode, which no base has, and which a container cannot write later

Bytecode is the same for all architectures. Therefore the base of this machine's architecture compiles the files.
"""

from __future__ import annotations

import io
import os
import pathlib
import sys
import tarfile
from typing import Any

from engine_calls import CHECKOUT, ask

sys.path[:0] = [str(CHECKOUT / ".ansible/collections"), str(CHECKOUT / "../../..")]

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import build, targets  # noqa: E402
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import (  # noqa: E402
    VersionError as VersionError,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels  # noqa: E402

ENVIRONMENT = "opt/node-device-plugin"
COMMAND = "usr/local/bin/node-device-plugin"

# Standard input and output are tar archives, so the container mounts no directory of this machine, and owners stay.
# UNCHECKED_HASH keeps the sources' dates out of the bytecode. (The sources do not change later.)
_COMPILE = """
import compileall, io, os, py_compile, re, sys, tarfile
site, stdlib = sys.argv[1:]
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sources:
    sources.extractall("/")
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
skipped = re.compile(r"/(site-packages|dist-packages|test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3)(/|$)")
if not compileall.compile_dir(site, maxlevels=99, force=True, quiet=2, invalidation_mode=mode):
    sys.exit("some files in %s do not compile to bytecode" % site)
compileall.compile_dir(stdlib, maxlevels=99, rx=skipped, force=True, quiet=2, invalidation_mode=mode)
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as compiled:
    for top in (site, stdlib):
        for directory, directories, names in os.walk(top):
            directories.sort()
            if os.path.basename(directory) == "__pycache__" and not (top == stdlib and skipped.search(directory)):
                for name in sorted(names):
                    compiled.add(os.path.join(directory, name))
"""


def target(facts: dict[str, Any], machine: str) -> str:
    """Return the wheels' target. facts: from bases.look. machine: output of `uname -m`. Raises VersionError."""
    chosen: str = targets.choose(wheels.table(), facts["python"]["version"], machine, facts["libc"])
    return chosen


def lay_out(root: pathlib.Path, facts: dict[str, Any], packed: pathlib.Path, digests: dict[str, str]) -> None:
    """Create the virtual environment and the command below `root`. Execute no program of the image.

    packed: archive of the wheels. digests: SHA-256 by wheel name.
    """
    python = facts["executable"]
    number = facts["python"]["version"]
    environment = root / ENVIRONMENT
    site = site_packages(root, facts)
    site.mkdir(parents=True)
    with tarfile.open(packed) as archive:
        for name, digest in digests.items():
            build.unpack_wheel(archive, name, digest, site)
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to(python)
    # Write the file that `python -m venv` writes. Source: https://docs.python.org/3/library/venv.html
    (environment / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(python)}\ninclude-system-site-packages = false\n"
        f"version = {'.'.join(map(str, number))}\n"
    )
    command = root / COMMAND
    command.parent.mkdir(parents=True)
    command.write_text(build.SCRIPT.format(python=f"/{ENVIRONMENT}/bin/python"))
    command.chmod(0o755)


def compile_all(root: pathlib.Path, facts: dict[str, Any], native_base: str) -> None:
    """Add the bytecode of the environment and of the standard library. The base's Python compiles the files."""
    site = site_packages(root, facts)
    sources = io.BytesIO()
    with tarfile.open(fileobj=sources, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(site.rglob("*.py")):
            archive.add(path, arcname=str(path.relative_to(root)))
    run = "run --rm --interactive --network none --cgroupns private --env PYTHONHASHSEED=0 --entrypoint python3"
    arguments = ["-c", _COMPILE, f"/{site.relative_to(root)}", facts["stdlib"]]
    compiled = ask(*run.split(), native_base, *arguments, given=sources.getvalue())
    with tarfile.open(fileobj=io.BytesIO(compiled)) as archive:
        archive.extractall(root, filter="data")


def level(root: pathlib.Path) -> None:
    """Set the same date for all files and directories, and modes that do not depend on the umask."""
    for directory, directories, names in os.walk(root, topdown=False):
        for path in (pathlib.Path(directory, name) for name in (*directories, *names)):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (0, 0), follow_symlinks=False)
    root.chmod(0o755)
    os.utime(root, (0, 0))


def site_packages(root: pathlib.Path, facts: dict[str, Any]) -> pathlib.Path:
    """Return the directory of the environment's packages."""
    return root / ENVIRONMENT / "lib" / "python{}.{}".format(*facts["python"]["version"]) / "site-packages"
