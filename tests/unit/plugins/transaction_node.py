"""A folder that plays a node on which a transaction is carried out, by real processes that can be killed.

Its container runtime is a file: which text it was started with. ``broken`` in a configuration keeps it from starting,
``no-cri`` and ``no-cdi`` from being what it should, ``crashes`` makes it end after its start, ``hurts`` takes a
container along; with ``outlives`` the container ends meanwhile, and its shim does not; with ``ended``, an
exit code and a reason both do, and the runtime knows these.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import crash_states
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import add_file
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import (
    launch,
    program,
    runtime,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places, Plan

# The words are of the runtime that is played, the form is for programs that read a containerd's configuration.
#: The runtime's log: a line with its configuration, and one that tells a problem.
VALUE = "tok-5ecret"
_AT = 'time="2026-11-26T03:27:06Z" '
_FAILED = 'level=warning msg="failed to load plugin io.containerd.grpc.v1.cri"'
JOURNAL = (
    f'{_AT}level=info msg="Start cri plugin with config {{Headers:map[X-Other:[{VALUE}]]}}"\n'
    f'{_AT}{_FAILED} error="{VALUE} is unknown"\n'
)
PROBLEM = f'{_FAILED} error="(hidden) is unknown"'
OLD = '# theirs\nversion = 2\nnote = "no-cdi"\n'
NEW = OLD.replace("no-cdi", "cdi")
DROP_IN = "drop-in\n"

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.chmod", "os.chown", "os.setxattr"}
#: What a full disk refuses: whatever takes a new file or folder.
_TAKES_SPACE = {"os.mkdir", "os.symlink"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Node:
    """A node with a configuration of somebody else's, and a runtime that runs with it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.config = root / "etc" / "containerd" / "config.toml"
        self.drop_in = root / "etc" / "containerd" / "conf.d" / "cdi.toml"
        self.places = Places(str(root / "var" / "node-devices"), str(root / "etc" / "units"), str(root / "lock"))
        self._daemon = root / "daemon.json"
        self._about_to: Any = lambda takes_space: None
        # Shim and container.
        self._container = (os.getppid(), os.getppid())
        #: When the container ended (seconds since the epoch). Whether the runtime notices this only after a restart.
        self.finished_at = math.inf
        self.is_unnoticed = False
        self.config.parent.mkdir(parents=True)
        (root / "etc" / "units" / "multi-user.target.wants").mkdir(parents=True)
        (root / "var").mkdir()
        self.config.write_text(OLD)
        self.config.chmod(0o640)
        with contextlib.suppress(OSError):
            os.setxattr(self.config, "user.note", b"kept")
        os.utime(self.config, ns=(1_000_000_000, 2_000_000_000))
        self.start()

    def start(self) -> bool:
        """As systemd starts the service; whether it came up."""
        text = self.config.read_text() if self.config.exists() else ""
        daemon = {"start": self.daemon["start"] + 1 if self._daemon.exists() else 1, "text": text}
        daemon["active"] = "broken" not in text
        self._daemon.write_text(json.dumps(daemon))
        with contextlib.suppress(ProcessLookupError):
            ends = {"hurts": self._container, "outlives": self._container[1:], "ended": self._container}
            for pid in next((ends[word] for word in text.split() if word in ends), ()):
                os.kill(pid, signal.SIGKILL)
                while runtime.started(pid) is not None:
                    time.sleep(0.01)
        return daemon["active"]

    def run_container(self) -> subprocess.Popen[str]:
        """Have a container that can end, as the child of its shim; gives the shim."""
        command = ["sh", "-c", "sleep 60 & echo $!; wait; sleep 60"]
        shim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert shim.stdout is not None
        self._container = (shim.pid, int(shim.stdout.readline()))
        return shim

    def power_off(self) -> None:
        self._daemon.write_text(json.dumps({**self.daemon, "active": False}))

    @property
    def daemon(self) -> dict[str, Any]:
        return json.loads(self._daemon.read_text())

    def plan(
        self, content: str | None = NEW, *, undo: bool = False, original: str | None = None, drop_in: bool = False
    ) -> Plan:
        """The root file, and with NEW or drop_in a drop-in in a folder that is to be made."""
        plan = Plan(
            identity="mine",
            owner="cdi_runtime",
            files=[],
            directories=[],
            entries={},
            undo=undo,
            unit="containerd.service",
            question=["ask"],
            spec_dirs=None if undo else ["/etc/cdi"],
            timeout=0,
        )
        wanted = {self.config: content}
        if undo or drop_in or content == NEW:
            wanted[self.drop_in] = None if undo else DROP_IN
        entries = ledger.Ledger(self.places.directory).entries
        for path, text in wanted.items():
            now = path.read_text() if path.exists() else None
            theirs = original if path == self.config else None
            add_file(plan, entries, (str(path), now, text), lambda change, entry, theirs=theirs: theirs)
        return plan

    def carry_out(self, plan: Plan | None = None, *, hook: Any = None) -> launch.Outcome | None:
        """As the module does it; None where its process was killed. hook: see ``in_child``."""
        with self.commands():
            prepared = launch._prepared(self.places, plan or self.plan())
        self.in_child(lambda: program.run(self.places, prepared), hook)
        return launch._outcome(self.places)

    def recover(self, *, boot: bool = False, hook: Any = None) -> int:
        return self.in_child(lambda: program.recover(self.places, boot), hook)

    def settle(self) -> launch.Outcome | None:
        """As the next run does it."""
        with self.commands():
            return launch.settle(self.places)

    def in_child(self, do: Any, hook: Any = None) -> int:
        """Do it in a process of its own; gives its exit code, negative where a signal ended it.

        hook: called before each change of this node (a restart, too) with its number, from 0 on, and with whether it
            takes space on the disk.
        """
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with self.commands():
                    if hook:
                        self._watch(hook)
                    do()
                code = 0
            except OSError as error:
                print(error, file=sys.stderr)
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _watch(self, hook: Any) -> None:
        numbers = itertools.count()
        self._about_to = lambda takes_space: hook(next(numbers), takes_space)

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event == "open" and arguments[2] & _WRITES
            if not (writes or event in _CHANGES) or not crash_states.path_of(arguments[0]).startswith(str(self.root)):
                return
            if str(arguments[0]) not in (self.places.lock, str(self._daemon)):
                self._about_to(event in _TAKES_SPACE or bool(writes and arguments[2] & os.O_CREAT))

        sys.addaudithook(audit)

    @contextlib.contextmanager
    def commands(self, really_synced: bool = False):
        """systemd's commands and the runtime's, as this node has them. really_synced: leave fsync alone."""
        really = subprocess.run, os.fsync
        subprocess.run = self._run
        if not really_synced:
            # A killed process loses nothing that it wrote; waiting for a disk would only take time.
            os.fsync = lambda descriptor: None
        try:
            yield
        finally:
            subprocess.run, os.fsync = really

    def _run(self, command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        code, output, error = 0, "", ""
        text = self.daemon["text"]
        if command[:2] == ["systemctl", "show"]:
            state = "active" if self.daemon["active"] else "inactive"
            output = "ActiveState=%s\nInvocationID=%s\n" % (state, self.daemon["start"])
            if launch.UNIT in command:
                output = "inactive\n"
        elif command[:2] == ["systemctl", "restart"]:
            self._about_to(False)
            if not self.start():
                code, error = 1, "Job for containerd.service failed."
            self._about_to(False)
        elif command[0] == "systemd-run":
            arguments = command[command.index("--") + 4 :]
            if self.in_child(lambda: program.main(arguments, self.places)):
                error = "it failed"
        elif command[0] == "journalctl":
            output = "the program's last words" if launch.UNIT in command else JOURNAL
        elif command[0] == "ask":
            if not self.daemon["active"]:
                code, error = 1, "connection refused"
            elif "crashes" in text:
                code, error = 1, "connection refused"
                self.start()
            elif "no-cri" in text:
                code, error = 1, "could not report its version: UNIMPLEMENTED: unknown service"
            else:
                cdi = {"enabled": "no-cdi" not in text, "spec_dirs": ["/etc/cdi/"]}
                there = runtime.started(self._container[1]) is not None
                is_unnoticed = self.is_unnoticed and self.daemon["start"] == 1
                containers = [{"id": "c1", "pid": self._container[1]}] if there or is_unnoticed else []
                answer = {"cdi": cdi, "conditions": {"RuntimeReady": True}, "containers": containers}
                if "--ended" in command and "ended" in text:
                    number, reason = text.split()[-2:]
                    ended = {"id": "c1", "exit_code": int(number), "reason": reason}
                    answer["ended"] = [{**ended, "finished_at": self.finished_at}]
                output = json.dumps(answer)
        return subprocess.CompletedProcess(command, code, output, error)

    def tree(self) -> dict[str, Any]:
        """Everything below the root, apart from the daemon: what it is, and of files all that belongs to them."""
        found: dict[str, Any] = {}
        for path in sorted(self.root.rglob("*")):
            status = path.lstat()
            what: list[Any] = [oct(status.st_mode), status.st_uid, status.st_gid]
            if path.is_symlink():
                what.append(os.readlink(path))
            elif path.is_file():
                attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
                what += [path.read_bytes().replace(str(self.root).encode(), b""), attributes]
                if path == self.config:
                    what.append(status.st_mtime_ns if status.st_mtime_ns == 2_000_000_000 else "now")
            found[str(path.relative_to(self.root))] = what
        del found["daemon.json"]
        return found


def killed_at(number: int) -> Any:
    """A hook: SIGKILL before that change."""

    def hook(count: int, _takes_space: bool) -> None:
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def full_from(number: int) -> Any:
    """A hook: no space on the disk from that change on."""

    def hook(count: int, takes_space: bool) -> None:
        if count >= number and takes_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return hook


def read_only_from(number: int) -> Any:
    """A hook: a disk that takes nothing from that change on."""

    def hook(count: int, _takes_space: bool) -> None:
        if count >= number:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    return hook
