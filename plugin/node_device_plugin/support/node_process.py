# SPDX-License-Identifier: Apache-2.0
"""Identifies the node's own processes. We trust only the options of these processes and run only their programs.

Any user can name a process ``kubelet``, or bind a fake runtime socket in a private namespace. A process is the node's
own if it runs as root and has the user and PID namespaces of PID 1. Its executable is not setuid, because any user can
start a setuid program such as sudo. In addition, the process meets one of these conditions:

- systemd runs the process as the main process of a system service of user root, and only root can write the unit's
  files. Otherwise the service's user may have started a setuid program in place of the main process.
- The process has the mount namespace of PID 1. Only root can write its executable and all directories above.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import Optional

#: A program's output and None, or None and the program's last error line.
Answer = tuple[Optional[str], Optional[str]]
#: The mount point of proc(5).
PROC = "/proc"
#: Seconds that a socket-activated service may take to start after a connection.
_START = 5
_PAUSE = 0.1
#: Seconds that a listener may take to accept a connection.
_CONNECT = 5
#: Seconds that a program may take to answer.
_ANSWER = 20
#: The properties of a unit that say who started its main process.
_STARTED_BY = ("User", "DynamicUser", "FragmentPath", "DropInPaths")
_INTERPRETER = re.compile(r"python\d*(\.\d+)*")


class NotTrusted(Exception):
    """The process is not the node's own. The message says why, as the end of a sentence about the process."""


class NodeProcess:
    """A process that is the node's own. Raises NotTrusted if it is not.

    Sources: proc(5), namespaces(7), systemd.service(5).
    pid: process id. arguments: the command line, beginning with the program's name. unit: the process's systemd
    service, or None. is_main: whether the process is that service's main process. executable: the program's path.
    replaced: whether that path now has another file or none, for example after an upgrade without a restart.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._directory = os.open(os.path.join(PROC, str(pid)), os.O_RDONLY)
            # Both descriptors refer to this process, even if another process gets its PID.
            self._program = os.open("exe", os.O_RDONLY, dir_fd=self._directory)
            self.executable, replaced, _nothing = self._link("exe").partition(" (deleted)")
            self.replaced = bool(replaced)
            self.unit = unit_in(os.fsdecode(self._read("cgroup")))
            said = properties(self.unit, "MainPID", "ExecStart", *_STARTED_BY) if self.unit else {}
            self.is_main = said.get("MainPID") == str(pid)
            self._check(said)
            self.arguments = [os.fsdecode(word) for word in self._read("cmdline").split(b"\0")[:-1]]
        except OSError as error:
            raise NotTrusted(f"cannot be read: {(error.strerror or str(error)).lower()}") from error
        script = re.search(r"path=(\S+) ;", said.get("ExecStart", ""))
        is_script = self.is_main and _INTERPRETER.fullmatch(os.path.basename(self.executable))
        self._script = script.group(1) if is_script and script else None

    def __del__(self) -> None:
        for name in ("_directory", "_program"):
            if hasattr(self, name):
                os.close(getattr(self, name))

    def _check(self, unit: dict[str, str]) -> None:
        for kind in ("user", "pid") if self.is_main else ("user", "pid", "mnt"):
            if self._link("ns/" + kind) != os.readlink(os.path.join(PROC, "1/ns", kind)):
                raise NotTrusted(f"runs in another {kind} namespace than the node's first process")
        uids = re.findall(rb"(?m)^Uid:\s(.*)$", self._read("status"))
        others = [uid for uid in uids[0].split() if uid != b"0"] if uids else [b"?"]
        if others:
            raise NotTrusted(f"runs as user {others[0].decode()}")
        program = os.fstat(self._program)
        if program.st_mode & (stat.S_ISUID | stat.S_ISGID):
            # Any user can start a setuid program such as sudo, with any name and options.
            raise NotTrusted(f"runs a setuid program, {self.executable}")
        if self.is_main:
            # systemd runs the program as root already, so it does not matter who can write it.
            other = _started_by_others(unit)
            if other:
                raise NotTrusted(f"is the main process of {self.unit}, and {other}")
            return
        obstacle = not_roots_alone(os.path.dirname(self.executable)) or _not_roots(self.executable, program)
        if obstacle:
            raise NotTrusted(f"runs a program that users other than root can replace: {obstacle}")

    def _link(self, name: str) -> str:
        return os.readlink(name, dir_fd=self._directory)

    def _read(self, name: str) -> bytes:
        with open(os.open(name, os.O_RDONLY, dir_fd=self._directory), "rb") as file:
            return file.read()

    @property
    def parent(self) -> int:
        """The PID of the parent; 0 if the process has ended."""
        try:
            found = re.search(rb"(?m)^PPid:\s(\d+)$", self._read("status"))
        except OSError:
            return 0
        return int(found.group(1)) if found else 0

    @property
    def environment(self) -> dict[str, str]:
        """The environment at the process's start; empty if the process has ended."""
        try:
            words = self._read("environ").split(b"\0")
        except OSError:
            return {}
        return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)

    @property
    def working_directory(self) -> str:
        """The process's working directory. Raises OSError if the process has ended."""
        return self._link("cwd")

    def run(self, *arguments: str, name: str | None = None) -> Answer:
        """Run the process's program with these arguments. Returns an Answer.

        The program is the file that the process runs, even if the path now has another file. If systemd runs a Python
        script as a service, the program is the script of ExecStart. Only root may be able to write that script.
        name: the program's argv[0]. A program with several names selects its role by argv[0].
        """
        if self._script:
            obstacle = not_roots_alone(self._script)
            return (None, obstacle) if obstacle else answer_of([self._script, *arguments])
        program = "/proc/self/fd/%d" % self._program
        return answer_of([name or self.executable, *arguments], executable=program, descriptors=[self._program])


def _started_by_others(unit: dict[str, str]) -> str | None:
    """Return why a unit's main process may not be what root started; None if it is. unit: its properties."""
    if unit.get("User") not in (None, "", "root", "0") or unit.get("DynamicUser") == "yes":
        return "that unit has the user {}".format(unit.get("User") or "of DynamicUser=")
    # A path with a space comes in parts, which do not exist.
    drop_ins = filter(os.path.lexists, unit.get("DropInPaths", "").split())
    files = [unit.get("FragmentPath"), *drop_ins]
    return next(filter(None, (not_roots_alone(path) for path in files if path)), None)


def the_only(name: str, found: Sequence[NodeProcess]) -> NodeProcess | None:
    """Return the process among those that `named` found; None without any.

    The main process of a service precedes other processes, and a process precedes its children, which may be about to
    run another program. Raises NotTrusted, with a sentence, if several processes remain.
    """
    if len(found) < 2:
        return found[0] if found else None
    pids = {process.pid for process in found}
    remaining = [process for process in found if process.is_main]
    remaining = remaining or [process for process in found if process.parent not in pids]
    if len(remaining) > 1:
        each = ", ".join(
            "%d (%s)" % (process.pid, process.unit if process.is_main else process.executable) for process in remaining
        )
        raise NotTrusted(
            f"several processes of root call themselves {name}: {each}. Stop each that is not this node's {name}"
        )
    return remaining[0]


def named(name: str) -> tuple[list[NodeProcess], list[str]]:
    """Return the node's own processes with this name, services first, and a sentence for each untrusted process.

    Skips processes in other PID namespaces, because they belong to a container or to another node.
    """
    found, refused = [], []
    for pid in sorted(int(entry) for entry in os.listdir(PROC) if entry.isdigit()):
        try:
            with open(os.path.join(PROC, str(pid), "comm"), encoding="utf-8", errors="replace") as file:
                if file.read().rstrip("\n") != name:
                    continue
            with open(os.path.join(PROC, str(pid), "cmdline"), "rb") as binary:
                if not binary.read(1):
                    # A process without a command line is ending.
                    continue
            if os.readlink(os.path.join(PROC, str(pid), "ns/pid")) == os.readlink(os.path.join(PROC, "1/ns/pid")):
                found.append(NodeProcess(pid))
        except OSError:
            continue
        except NotTrusted as error:
            refused.append("process %d calls itself %s, but %s" % (pid, name, error))
    return sorted(found, key=lambda process: not process.is_main), refused


def listener(path: str, seconds: float = _START) -> tuple[NodeProcess | None, str | None]:
    """Return the node's own process that listens on a unix socket and None, or None and a problem.

    seconds: limit for the start of a socket-activated service. Source: unix(7), SO_PEERCRED.
    """
    try:
        pid = peer(path)
        if pid == 0:
            return None, "a process of another PID namespace listens on the socket"
        if pid == 1:
            # systemd called listen(), and passes the socket to the service that it starts.
            pid = _activated(path, seconds)
            if pid == 0:
                return None, "systemd listens on the socket but has not started a service for it"
        return NodeProcess(pid), None
    except OSError as error:
        return None, (error.strerror or str(error)).lower()
    except NotTrusted as error:
        return None, "process %d listens there, but it %s" % (pid, error)


def peer(path: str) -> int:
    """Return the PID of the process that called listen() on a unix socket. Raises OSError.

    The result is 0 if the process is in a PID namespace that is not visible here.
    """
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise OSError(0, "it is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT)
        client.connect(path)
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid


def _activated(path: str, seconds: float) -> int:
    """Return the main PID of a socket's service, for which systemd listens; 0 if the service does not start in time."""
    said = answer_of(["systemctl", "show", "*.socket", "--property=Listen,Triggers"])[0] or ""
    units = [
        unit
        for block in said.split("\n\n")
        for unit in re.findall(r"(?m)^Triggers=(.*)$", block)
        if any(os.path.realpath(each) == os.path.realpath(path) for each in re.findall(r"(/\S*) \(Stream\)", block))
    ]
    until = time.monotonic() + seconds
    while units:
        pid = int(properties(units[0], "MainPID").get("MainPID") or 0)
        if pid:
            return pid
        if time.monotonic() >= until:
            break
        time.sleep(_PAUSE)
    return 0


def not_roots_alone(path: str) -> str | None:
    """Return why a user other than root can replace a file or directory; None if only root can replace the path."""
    path = os.path.realpath(path)
    try:
        status = os.stat(path)
        while True:
            obstacle = _not_roots(path, status)
            if obstacle or path == "/":
                return obstacle
            path = os.path.dirname(path)
            status = os.stat(path)
            if status.st_mode & stat.S_ISVTX and status.st_uid == 0 and path != "/":
                # In such a directory, other users cannot replace an entry of root, such as a package in /nix/store.
                path = os.path.dirname(path)
                status = os.stat(path)
    except OSError as error:
        return f"{path}: {(error.strerror or str(error)).lower()}"


def _has_access_list(path: str) -> bool:
    """Return whether a path may have an access control list. The group bits then show its entries: see acl(5)."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError as error:
        return error.errno != errno.ENOTSUP


def _not_roots(path: str, status: os.stat_result) -> str | None:
    if status.st_uid != 0:
        return f"{path} belongs to user id {status.st_uid}, not to root: chown root {shlex.quote(path)}"
    if status.st_mode & (0o002 if status.st_gid == 0 and not _has_access_list(path) else 0o022):
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return f"users other than root can write {path} (mode {mode}): chmod go-w {shlex.quote(path)}"
    return None


def unit_in(cgroup: str, kinds: str = "service") -> str | None:
    """Return the innermost systemd unit in the text of /proc/PID/cgroup, or None. kinds: with ``|`` between them.

    Anybody who owns a cgroup names it, so only names that are safe in a command count.
    """
    found = re.findall(rf"/([\w:.@\\-]+\.(?:{kinds}))(?=[/\n]|$)", cgroup, re.ASCII)
    return found[-1] if found else None


def properties(unit: str, *names: str) -> dict[str, str]:
    """Return properties of a systemd unit by name; empty if there is no systemd."""
    said = answer_of(["systemctl", "show", "--property=" + ",".join(names), "--", unit])[0] or ""
    return {name: value for name, _equals, value in (line.partition("=") for line in said.splitlines())}


def command_of(exec_start: str) -> list[str]:
    """Return the words of the first command in a unit's property ExecStart; none if there is no command."""
    found = re.search(r"argv\[\]=(.*?) ; ignore_errors=", exec_start)
    return found.group(1).split() if found else []


def stat_of(pid: int) -> list[str]:
    """Return the fields after the name in /proc/PID/stat, see proc(5); none if the process has ended."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may contain anything.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def option(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of an option, ``--name value`` or ``--name=value``; None if the option is not given.

    If an option occurs several times, the last value counts.
    """
    return next(reversed(options(arguments, *names)), None)


def options(arguments: Sequence[str], *names: str) -> list[str]:
    """Return all values of an option."""
    found = []
    for position, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if name in names:
            if separator:
                found.append(value)
            elif position + 1 < len(arguments):
                found.append(arguments[position + 1])
    return found


def answer_of(
    command: Sequence[str],
    seconds: float = _ANSWER,
    executable: str | None = None,
    descriptors: Sequence[int] = (),
) -> Answer:
    """Run a command. Returns an Answer.

    executable: the file to run; None for the command's first word. descriptors: open files that the command inherits.
    """
    try:
        done = subprocess.run(
            command,
            executable=executable,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            pass_fds=descriptors,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, str(error)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        # The last lines of a Go panic are only a stack trace.
        panics = [line for line in said if line.startswith("panic: ")]
        return None, (panics or said[-1:] or ["exit code %d" % done.returncode])[0]
    return done.stdout.decode("utf-8", "replace"), None
