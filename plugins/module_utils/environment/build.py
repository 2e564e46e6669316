# SPDX-License-Identifier: Apache-2.0
"""Creates a virtual environment from wheels, without pip."""

from __future__ import annotations

import ctypes
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import zipfile

from .. import ledger as ledgers
from ..node_device_plugin.support.node_process import answer_of

#: The command in an environment's ``bin``.
COMMAND = "node-device-plugin"
_MARKER = "complete.json"
# Seconds that a slow node may take to import the plugin for the first time.
_LOADING = 300
#: The program of the command. It calls the function that pyproject.toml names.
SCRIPT = """\
#!{python} -I
import sys

from node_device_plugin.cli.main import main

sys.exit(main())
"""


class VersionError(ledgers.LedgerConflict):
    """A version of the plugin cannot be installed, or does not serve its resources. The message says why."""


def run(command):
    """Run a command. Raises VersionError with the end of its output if the command fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise VersionError("{} failed: {}".format(" ".join(command[:4]), done.stdout.strip()[-800:]))


def base_python():
    """Return the path of the system's Python, even if Ansible runs in a virtual environment on the node."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def is_complete(directory, name):
    """Return whether the environment can run and no file was edited."""
    return can_run(directory, name) and not edited(directory)


def can_run(directory, name):
    """Return whether the environment is complete and the system still has the Python that created the environment."""
    marker = _marker_of(directory)
    python = os.path.join(directory, "bin", "python")
    same_python = marker.get("python") == list(sys.version_info[:2]) and os.path.realpath(python) == base_python()
    return marker.get("name") == name and same_python and os.access(os.path.join(directory, "bin", COMMAND), os.X_OK)


def edited(directory):
    """Return the files that were changed or removed since the environment was created, as relative paths."""
    files = _marker_of(directory).get("files") or {}
    return sorted(path for path, was in files.items() if _looks(os.path.join(directory, path)) != was)


def _marker_of(directory):
    try:
        with open(os.path.join(directory, _MARKER), encoding="utf-8") as file:
            marker = json.load(file)
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def _looks(path):
    """Return a file's metadata; None if the file is missing. Does not read the content, because that would be slow."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    access = [status.st_mode, status.st_uid, status.st_gid]
    # Omit a directory's size and time, because foreign files may change them. Some file systems store whole seconds.
    return access if stat.S_ISDIR(status.st_mode) else [*access, status.st_size, int(status.st_mtime)]


def _files_of(directory):
    """Return, by relative path, the metadata of a directory and of all its files and subdirectories."""
    found = [(parent, name) for parent, inner, names in os.walk(directory) for name in inner + names]
    paths = [os.path.join(parent, name) for parent, name in found]
    return {os.path.relpath(path, directory): _looks(path) for path in [directory, *paths]}


def unpack_wheel(archive, member, digest, site):
    """Unpack a wheel into site-packages if its SHA-256 hash is ``digest``.

    Raises VersionError if the hash differs or a file belongs outside site-packages.
    """
    # Read once, so that the unpacked bytes are the hashed bytes even if the archive changes.
    content = archive.extractfile(member).read()
    if ledgers.sha256(content) != digest:
        raise VersionError(
            f"{member} arrived with another SHA-256 than the one that was sent, so it was not installed: run again"
        )
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        names = wheel.namelist()
        for entry in wheel.infolist():
            outside = os.path.isabs(entry.filename) or "\\" in entry.filename or ".." in entry.filename.split("/")
            if outside or stat.S_ISLNK(entry.external_attr >> 16):
                raise VersionError(f"{member} contains a link or a file outside site-packages: {entry.filename}")
        data = [name for name in names if name.split("/")[0].endswith(".data")]
        if data:
            raise VersionError(f"{member} contains files outside site-packages: {data[0]}")
        wheel.extractall(site)  # noqa: S202 (its names are checked above)


def _try_to_load(partial):
    """Import the command and the compiled package grpc. Raises VersionError if the import fails."""
    python = os.path.join(partial, "bin", "python")
    tried = [python, "-I", "-c", "import node_device_plugin.cli.main, grpc"]
    _said, problem = answer_of(tried, _LOADING)
    if problem:
        raise VersionError(
            f"the plugin does not load on this node: {problem}. It needs glibc and libstdc++.so.6 "
            f"(Debian: libstdc++6, Fedora: libstdc++), and a file system that is not mounted noexec "
            f"below {os.path.dirname(partial)}"
        )


def _sync_file_system(path):
    """Make the file system of ``path`` durable (syncfs(2)).

    One call covers thousands of files. os.sync would also wait for all other file systems, including unresponsive ones.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def build(directory, name, archive_path, wheels):
    """Create the environment in a hidden directory beside ``directory``, then rename the hidden directory.

    All users may read the environment, whatever umask the connection or sudo has.
    """
    umask = os.umask(0o022)
    try:
        _build(directory, name, archive_path, wheels)
    finally:
        os.umask(umask)


def _build(directory, name, archive_path, wheels):
    partial = os.path.join(os.path.dirname(directory), f".{name}.partial")
    ledgers.remove_tree(partial)
    # Debian's Python has no ensurepip without python3-venv, hence --without-pip.
    run([base_python(), "-I", "-m", "venv", "--without-pip", "--symlinks", partial])
    # Remove the activate scripts, because they contain the temporary path.
    for script in os.listdir(os.path.join(partial, "bin")):
        if script.lower().startswith("activate"):
            os.unlink(os.path.join(partial, "bin", script))
    site = os.path.join(partial, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    with tarfile.open(archive_path) as archive:
        for member, digest in wheels.items():
            unpack_wheel(archive, member, digest, site)
    script = os.path.join(partial, "bin", COMMAND)
    python = os.path.join(directory, "bin", "python")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT.format(python=python))
    os.chmod(script, 0o755)  # noqa: S103 (a program)
    # Compile now, because services cannot write here. -s and -p record the final directory in the code.
    compile_all = ["-m", "compileall", "-q", "-j", "0", "-s", partial, "-p", directory, site]
    run([os.path.join(partial, "bin", "python"), "-I", *compile_all])
    _try_to_load(partial)
    marker = {"name": name, "python": list(sys.version_info[:2]), "wheels": wheels, "files": _files_of(partial)}
    with open(os.path.join(partial, _MARKER), "w", encoding="utf-8") as file:
        json.dump(marker, file)
    _sync_file_system(partial)
    ledgers.remove_tree(directory)
    os.rename(partial, directory)
    ledgers.sync(os.path.dirname(directory))
