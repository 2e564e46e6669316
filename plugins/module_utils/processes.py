# SPDX-License-Identifier: Apache-2.0
"""What /proc and a command say of a process. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import os
import subprocess


def arguments_of(pid):
    """A process's command line."""
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def environment_of(pid):
    """A process's environment as it was started with; empty where it is hidden."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            words = [word.decode("utf-8", "replace") for word in file.read().split(b"\0")]
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def started_at(pid):
    """When a process started, in seconds since 1970, to about a second; None if it has ended. See proc(5)."""
    stat, boot = text_of("/proc/%s/stat" % pid), text_of("/proc/stat")
    if not stat or not boot:
        return None
    # The name, in parentheses, may hold anything.
    ticks = int(stat.rpartition(")")[2].split()[19])
    booted = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith("btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def written_since(pid, paths):
    """Those of the files that were written after a process started, so that it may not have read them."""
    start = started_at(pid)
    # Two seconds are what nobody knows exactly.
    return [path for path in paths if start and os.path.exists(path) and os.stat(path).st_mtime > start + 2]


def option(arguments, *names):
    """The value of an option, as ``--name value`` or ``--name=value``; None where it is not given.

    The last one where it is given several times (a unit's own line, and what a drop-in's variable adds to it).
    """
    return next(reversed(options(arguments, *names)), None)


def options(arguments, *names):
    """Every value of an option."""
    found = []
    for position, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if name in names:
            if separator:
                found.append(value)
            elif position + 1 < len(arguments):
                found.append(arguments[position + 1])
    return found


def program_of(pid, arguments, known):
    """What a process is, as name, executable, and whether that file was replaced since the process started.

    A program of many names says it in its first argument only: k3s is its own containerd, by a link ``containerd`` that
    lies beside it; a wrapper has a name of its own. arguments: its command line. known: names that count.
    Raises OSError where there is no such process, or it is hidden.
    """
    executable, replaced, _nothing = os.readlink("/proc/%d/exe" % pid).partition(" (deleted)")
    name = os.path.basename(executable)
    called = os.path.basename(arguments[0]) if arguments else ""
    if name not in known and called in known:
        name, beside = called, os.path.join(os.path.dirname(executable), called)
        executable = beside if os.path.exists(beside) else executable
    return name, executable, bool(replaced)


def shares_our_pids(pid):
    """Whether a process sees the processes that we see: not so the one of a node that runs in a container here."""
    try:
        return os.readlink("/proc/%s/ns/pid" % pid) == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False


def unit_of(pid):
    """The systemd service that a process belongs to, by its cgroup; None if it is in none."""
    try:
        with open("/proc/%d/cgroup" % pid, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in lines:
        for part in reversed(line.split(":", 2)[-1].split("/")):
            if part.endswith(".service"):
                return part
    return None


def output_of(command, seconds=20, executable=None):
    """What a command prints; None if it fails or is none."""
    return answer_of(command, seconds, executable)[0]


def answer_of(command, seconds=20, executable=None):
    """What a command prints and None, or None and its last words.

    executable: what is run, where that is not what the command's first word says.
    """
    try:
        done = subprocess.run(command, executable=executable, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        # Of a Go program that fell over, the last lines are only where.
        panics = [line for line in said if line.startswith("panic: ")]
        return None, (panics or said[-1:] or ["exit code %d" % done.returncode])[0]
    return done.stdout.decode("utf-8", "replace"), None


def text_of(path):
    """A file's text; None where there is none or it is not text."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
