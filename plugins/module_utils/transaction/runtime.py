# SPDX-License-Identifier: Apache-2.0
"""The running container runtime: restarted, asked, and held to what it should say.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import subprocess
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import directory_names
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import stat_of

_JOURNAL_LINES = "15"
_PAUSE = 0.05
# systemd's own limit for a start is 90 s as a rule; k3s' unit has none.
_RESTART = 300


class Failed(LedgerConflict):
    """Something did not work out; the message says what."""


class Final(Failed):
    """An answer that waiting does not change."""


def run(command, seconds=60):
    """Exit code, standard output and standard error."""
    try:
        # Whatever a journal holds must not keep anything from being undone.
        done = subprocess.run(
            command, capture_output=True, timeout=seconds, check=False, encoding="utf-8", errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def process(pid):
    """A process's parent, and when it started, in clock ticks since the boot; None if it has ended. See proc(5)."""
    fields = stat_of(pid)
    return None if not fields or fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def started(pid):
    """When a process started; None if it has ended."""
    found = process(pid)
    return found and found[1]


class Runtime:
    """A runtime's service.

    plan: its ``unit``, ``question``, ``spec_dirs`` and ``timeout``.
    """

    def __init__(self, plan):
        self.plan = plan

    def state(self):
        """The service's state, and which of its starts this is."""
        names = ("ActiveState", "InvocationID")
        command = ["systemctl", "show", self.plan.unit, *("--property=" + name for name in names)]
        said = dict(line.split("=", 1) for line in run(command)[1].splitlines() if "=" in line)
        return [said.get(name, "") for name in names]

    def restart(self):
        """Restart it. Raises Failed where it does not start."""
        # Earlier attempts must not count against this one.
        run(["systemctl", "reset-failed", self.plan.unit])
        code, _output, error = run(["systemctl", "restart", self.plan.unit], seconds=_RESTART)
        if code:
            raise Failed("{} did not start: {}".format(self.plan.unit, (error.strip().splitlines() or ["?"])[0]))

    def ask(self, *more):
        """Its own answer. more: arguments of the question. Raises Failed where there is none."""
        code, output, error = run([*self.plan.question, *more], seconds=20)
        if code == 0:
            try:
                return json.loads(output)
            except ValueError as problem:
                raise Failed(f"{self.plan.question[0]} does not answer in JSON: {problem}") from problem
        said = (error.strip().splitlines() or [f"{self.plan.question[0]} failed"])[-1]
        # gRPC's word for a service that is not there: the daemon serves, and its CRI plugin did not come up.
        raise (Final if "UNIMPLEMENTED" in said else Failed)(said)

    def wait(self, cdi):
        """Its answer, as soon as it gives one.

        cdi: whether it must say that CDI is on. Raises Failed where it does not come, or is not as it should be.
        """
        until = time.monotonic() + self.plan.timeout
        _state, start = self.state()
        while True:
            try:
                answer = self.ask()
                break
            except Final:
                raise
            except Failed as failure:
                state, now = self.state()
                # Of a service that does not say when it is ready, a start that failed is seen only now.
                if state == "failed" or (start and now and now != start):
                    raise Failed(f"{self.plan.unit} ended right after its start: {failure}") from failure
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)
        if not answer.get("conditions", {}).get("RuntimeReady", True):
            raise Failed("the running daemon says that it is not ready")
        if cdi and self.plan.spec_dirs is not None:
            said = answer["cdi"]
            if not said["enabled"] or directory_names.lacking(self.plan.spec_dirs, said["spec_dirs"] or []):
                raise Failed(
                    "the running daemon says that CDI is {}, folders {}".format(said["enabled"], said["spec_dirs"])
                )
        return answer

    def torn_down(self, before, answer):
        """The containers that its restart took along, of those that ran before it, each with how it ended.

        One whose shim runs on has come to its own end in the meantime, as jobs do. A CRI-O container's conmon ends with
        it: what tells is that the runtime knows how it ended. before: see ``processes``. answer: what it said after it.
        """
        now = processes(answer)
        gone = [each for each in before if before[each][:2] != now.get(each, [])[:2]]
        gone = [each for each in gone if before[each][3] is None or started(before[each][2]) != before[each][3]]
        ends = {}
        if gone:
            ends = {each["id"]: each for each in self.ask("--ended", *gone).get("ended", ())}
        return {each: _ending(ends.get(each)) for each in sorted(gone) if not _own_end(ends.get(each))}

    def journal(self):
        """The last lines of its journal."""
        command = ["journalctl", "--unit", self.plan.unit, "--lines", _JOURNAL_LINES]
        return run([*command, "--no-pager", "--output", "cat"])[1]


def processes(answer):
    """The running containers of an answer; empty where it does not list any.

    By id: process, its start, and its parent (containerd's shim, one for a pod) with its start.
    """
    found = {}
    for each in answer.get("containers", ()):
        parent, start = process(each["pid"]) or (0, None)
        found[each["id"]] = [each["pid"], start, parent, started(parent)]
    return found


# Where nobody saw the end, as both runtimes say it, and what SIGKILL and SIGTERM leave, which may be the restart's.
_TAKEN_ALONG = (255, 128 + 9, 128 + 15)


def _own_end(end):
    """Whether a container came to its own end, by what the runtime knows of it; None for nothing."""
    return end is not None and (end["exit_code"] not in _TAKEN_ALONG or end["reason"] == "OOMKilled")


def _ending(end):
    return "exit code %d" % end["exit_code"] if end else "no end of it is known"
