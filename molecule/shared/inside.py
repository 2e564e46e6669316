"""Prints what a process can reach. Scenarios run it inside the plugin's sandbox, and outside, where all succeeds.

Arguments: attempts as KIND:PATH. The output has a line for each attempt, with "yes" or the error:
connect (to a unix socket), read (a file, or the names in a directory), write (make a file in a directory), node (make a
device node in a directory), mount (make a directory writable again).
"""

import ctypes
import os
import socket
import stat
import sys

MS_REMOUNT_BIND = 32 | 4096


def connect(path):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(5)
            try:
                return client.connect(path)
            except OSError as error:
                problem = error
                if "wrong type" not in str(error):
                    break
    raise problem


def read(path):
    if os.path.isdir(path):
        if not os.listdir(path):
            raise OSError(0, "empty")
        return
    with open(path, "rb") as file:
        file.read(1)


def write(path):
    made = os.path.join(path, "inside-%d" % os.getpid())
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(made)


def node(path):
    made = os.path.join(path, "inside-%d" % os.getpid())
    os.mknod(made, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.unlink(made)


def mount(path):
    libc = ctypes.CDLL(None, use_errno=True)
    # Outside the sandbox, the directory is writable and may not be a mount (EINVAL). Only a missing right counts.
    if libc.mount(b"none", path.encode(), None, MS_REMOUNT_BIND, None) and ctypes.get_errno() != 22:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


for attempt in sys.argv[1:]:
    kind, _, path = attempt.partition(":")
    try:
        {"connect": connect, "read": read, "write": write, "node": node, "mount": mount}[kind](path)
        print(attempt, "yes")
    except OSError as error:
        print(attempt, error.strerror or error)
