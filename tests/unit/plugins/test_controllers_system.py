"""A controller may have macOS, which lacks what only Linux has."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

COLLECTION = pathlib.Path(__file__).parents[3]
#: Attributes of Python's modules that only Linux has. Source: Python's documentation, "Availability".
ONLY_ON_LINUX = {
    "os": (
        *("O_PATH", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "listxattr", "getxattr", "setxattr", "memfd_create"),
        *("sched_getaffinity", "sched_setaffinity", "pidfd_open", "eventfd", "setns", "unshare", "splice", "getrandom"),
        *("setresuid", "setresgid", "getresuid", "getresgid", "posix_fallocate", "posix_fadvise", "pipe2", "fdatasync"),
    ),
    "socket": ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
    "select": ("epoll",),
    "signal": ("sigwaitinfo", "sigtimedwait", "SIGRTMIN", "SIGPWR", "pidfd_send_signal"),
    "resource": ("prlimit", "RLIMIT_NICE", "RLIMIT_SIGPENDING"),
    "fcntl": ("F_OFD_SETLK", "F_OFD_SETLKW", "F_SETPIPE_SZ", "F_SETLEASE", "F_NOTIFY"),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI"),
}
IMPORT_ALL = """
import importlib, sys
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration
# Python and Ansible have decided by now what they use.
import ansible.plugins.action, asyncio, multiprocessing, subprocess, tempfile
for module, names in {only_on_linux!r}.items():
    for name in names:
        if hasattr(importlib.import_module(module), name):
            delattr(sys.modules[module], name)
ours = "ansible_collections.nodedevices"
for name in [name for name in sys.modules if name.startswith(ours + ".kubernetes.")]:
    del sys.modules[name]
for name in {modules!r}:
    importlib.import_module(name)
    print(name)
"""


def test_all_that_a_controller_imports_is_importable_without_linux():
    folders = (COLLECTION / "plugins" / each for each in ("action", "filter", "plugin_utils"))
    files = (path for folder in folders for path in folder.rglob("*.py") if path.name != "__init__.py")
    modules = sorted(
        "ansible_collections.nodedevices.kubernetes." + ".".join(path.relative_to(COLLECTION).with_suffix("").parts)
        for path in files
    )
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL.format(only_on_linux=ONLY_ON_LINUX, modules=modules)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.stdout.split()) == ("", modules)
