"""Processes for tests of what is read of processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a process of the node's own needs root")

# Perl, because any user can run it: the tests' Python may be root's own.
LISTEN = """\
use Socket;
socket(S, PF_UNIX, SOCK_STREAM, 0) && bind(S, sockaddr_un($ARGV[0])) or die $!;
chmod(0777, $ARGV[0]) && listen(S, 128) or die $!;
$| = 1;
print "listens\\n";
sleep 60;
"""


@contextlib.contextmanager
def running(command, **options):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)


def started(pid, name):
    """Waits until a process that was just forked runs its program; the kernel sets the name before the command line."""
    until = time.monotonic() + 30
    proc = pathlib.Path(f"/proc/{pid}")
    while (proc / "comm").read_text().strip() != name or not (proc / "cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.01)
    return pid


@contextlib.contextmanager
def listening(proc, path, *arguments):
    """A containerd behind a socket, which is Perl by another name: anybody's may be the tests' Python."""
    with running(["containerd", "-e", LISTEN, str(path), *arguments], executable="/usr/bin/perl") as process:
        assert process.stdout.readline() == "listens\n"
        yield proc.show(process.pid)
