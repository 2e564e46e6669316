"""Compares directory names and ignores different spellings."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence

#: The directories of the role's specs and of the plugin's specs. All runtimes read them by default.
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
#: The directories below which the plugin's unit can show nothing, because of its ProtectHome and PrivateTmp.
NEVER_SHOWN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 (they are only named)
#: All directories that the unit hides, also by TemporaryFileSystem and InaccessiblePaths. See
#: roles/device_plugin/templates/node-device-plugin.service.j2.
HIDDEN = (
    *("/home", "/root", "/tmp", "/var/tmp", "/run", "/var/lib/kubelet"),  # noqa: S108
    *("/etc/cni", "/etc/containerd", "/etc/crio", "/etc/docker", "/etc/kubernetes", "/etc/rancher", "/etc/ssh"),
    *("/var/lib/cloud", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd"),
    *("/var/lib/k0s", "/var/lib/node-devices", "/var/lib/rancher", "/var/snap"),
)


def above(path: str, directories: Iterable[str]) -> str | None:
    """Return the first of the directories that contains ``path``, or is it; None if there is none. Follows links."""
    path = os.path.realpath(path)
    # Some systems have links there, such as /home to /var/home.
    return next((each for each in directories if f"{path}/".startswith(f"{os.path.realpath(each)}/")), None)


def normal(path: str) -> str:
    """Return a directory without trailing slash, and with /run instead of /var/run, which systemd links to /run."""
    path = posixpath.normpath(path)
    return path[len("/var") :] if path == "/var/run" or path.startswith("/var/run/") else path


def missing(wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    """Return the directories in ``wanted`` that ``there`` does not contain. Ignores different spellings."""
    names = {normal(directory) for directory in there}
    return [directory for directory in wanted if normal(directory) not in names]


def by_precedence(directories: Iterable[str]) -> list[str]:
    """Return each directory once, under its cleaned name, with the highest precedence last.

    If a directory is listed twice, its last position counts, as in the CDI library (pkg/cdi/cache.go).
    """
    names = [posixpath.normpath(directory) for directory in directories]
    return list(dict.fromkeys(reversed(names)))[::-1]


def with_added(directories: Sequence[str], directory: str) -> tuple[str, ...]:
    """Return the directories and, unless they contain it, ``directory`` at the end."""
    return (*directories, *missing([directory], directories))


def with_ours(spec_dirs: Iterable[str], static: str, running: str) -> list[str]:
    """Return a runtime's CDI directories with ours added.

    A spec in a later directory overrides a spec in an earlier directory, so ``running`` comes after ``static``.
    """
    wanted = list(spec_dirs)
    absent = missing([static, running], wanted)
    if static in absent:
        names = [normal(directory) for directory in wanted]
        wanted.insert(len(wanted) if running in absent else names.index(normal(running)), static)
    if running in absent:
        wanted.append(running)
    return wanted
