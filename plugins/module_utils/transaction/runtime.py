# SPDX-License-Identifier: Apache-2.0
"""Restarts and queries the running container runtime, and checks its answer."""

from __future__ import annotations

import json
import subprocess
import time

from ..ledger import LedgerConflict
from ..node_device_plugin.support import directory_names, safe_words
from ..node_device_plugin.support.node_process import stat_of

# A start of containerd logs about 60 lines, and the problem may be among the first.
_JOURNAL_LINES = "100"
_PAUSE = 0.05
# Seconds that a restart may take. systemd's default limit is 90 s; k3s' unit has no limit.
_RESTART = 300


class Failed(LedgerConflict):
    """A change failed or cannot start. The message says why."""


class Final(Failed):
    """A failure for which a retry is useless."""


def run(command, seconds=60):
    """Run a command. Returns exit code, standard output and standard error.

    The exit code is 127 if the command did not start or timed out.
    """
    try:
        # Undecodable text, for example from the journal, must not prevent an undo.
        done = subprocess.run(
            command, capture_output=True, timeout=seconds, check=False, encoding="utf-8", errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def process(pid):
    """Return a process's parent and start (clock ticks since boot); None if the process has ended. See proc(5)."""
    fields = stat_of(pid)
    return None if not fields or fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def started(pid):
    """Return a process's start in clock ticks since boot; None if the process has ended."""
    found = process(pid)
    return found and found[1]


class Runtime:
    """A runtime's service.

    plan: the Plan with ``unit``, ``question``, ``spec_dirs`` and ``timeout``.
    """

    def __init__(self, plan):
        self.plan = plan

    def state(self):
        """Return the service's ActiveState and InvocationID."""
        names = ("ActiveState", "InvocationID")
        command = ["systemctl", "show", self.plan.unit, *("--property=" + name for name in names)]
        said = dict(line.split("=", 1) for line in run(command)[1].splitlines() if "=" in line)
        return [said.get(name, "") for name in names]

    def restart(self):
        """Restart the service. Raises Failed if the service does not start."""
        # Without a reset, earlier failed starts could exhaust systemd's start limit.
        run(["systemctl", "reset-failed", self.plan.unit])
        code, _output, error = run(["systemctl", "restart", self.plan.unit], seconds=_RESTART)
        if code:
            raise Failed("{} did not start: {}".format(self.plan.unit, (error.strip().splitlines() or ["?"])[0]))

    def ask(self, *more):
        """Return the runtime's answer. more: further arguments of the question. Raises Failed without an answer."""
        code, output, error = run([*self.plan.question, *more], seconds=20)
        if code == 0:
            try:
                return json.loads(output)
            except ValueError as problem:
                raise Failed(f"{self.plan.question[0]} does not answer in JSON: {problem}") from problem
        said = (error.strip().splitlines() or [f"{self.plan.question[0]} failed"])[-1]
        # gRPC's UNIMPLEMENTED means that the daemon runs, but its CRI plugin did not start.
        raise (Final if "UNIMPLEMENTED" in said else Failed)(said)

    def wait(self, cdi):
        """Wait for the runtime's answer and return it.

        cdi: whether CDI must be enabled. Raises Failed if there is no answer or the answer is wrong.
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
                # A service without readiness notification shows a failed start only now.
                if state == "failed" or (start and now and now != start):
                    raise Failed(f"{self.plan.unit} ended right after its start: {failure}") from failure
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)
        if not answer.get("conditions", {}).get("RuntimeReady", True):
            raise Failed("the running daemon reports that it is not ready")
        if cdi and self.plan.spec_dirs is not None:
            said = answer["cdi"]
            if not said["enabled"] or directory_names.missing(self.plan.spec_dirs, said["spec_dirs"] or []):
                raise Failed(
                    "the running daemon reports CDI enabled: {}, spec directories: {}".format(
                        said["enabled"], said["spec_dirs"]
                    )
                )
        return answer

    def torn_down(self, before, since, answer):
        """Return the containers that the restart ended, each with its exit code as text.

        If a container's shim still runs, the container ended by itself, for example a Job's container. CRI-O's conmon
        ends with its container, so for CRI-O the runtime's record of the end counts. before: the result of
        ``processes`` before the restart. since: the time of the restart, in seconds since the epoch. answer: the
        runtime's answer after the restart.
        """
        now = processes(answer)
        gone = [each for each in before if before[each][:2] != now.get(each, [])[:2]]
        gone = [each for each in gone if before[each][3] is None or started(before[each][2]) != before[each][3]]
        ends = {}
        if gone:
            ends = {each["id"]: each for each in self.ask("--ended", *gone).get("ended", ())}
        return {each: _ending(ends.get(each)) for each in sorted(gone) if not _own_end(ends.get(each), since)}

    def journal(self):
        """Return the problems in the service's last journal lines. Omits text that its configuration may contain."""
        command = ["journalctl", "--unit", self.plan.unit, "--lines", _JOURNAL_LINES]
        output = run([*command, "--no-pager", "--output", "cat"])[1]
        return safe_words.lines(output, (self.plan.unit, *(file.path for file in self.plan.files)))


def processes(answer):
    """Return an answer's running containers by id; empty if the answer lists no containers.

    Each value is a list: PID and start time of the container's process, PID and start time of its parent (containerd's
        shim, one per pod).
    """
    found = {}
    for each in answer.get("containers", ()):
        running = process(each["pid"])
        # A runtime notices late that a container has ended.
        if running is not None:
            parent, start = running
            found[each["id"]] = [each["pid"], start, parent, started(parent)]
    return found


# Exit codes of both runtimes for an end that they did not observe, and of SIGKILL and SIGTERM, which the restart sends.
_TAKEN_ALONG = (255, 128 + 9, 128 + 15)


def _own_end(end, since):
    """Return whether a container ended without the restart. end: the runtime's record of the end, or None.

    since: the time of the restart. Before it, a kubelet may have killed the container, because its pod was deleted.
    """
    if end is None:
        return False
    # The command of an earlier release does not answer with the time.
    was_before = 0 < end.get("finished_at", 0) < since
    return was_before or end["exit_code"] not in _TAKEN_ALONG or end["reason"] == "OOMKilled"


def _ending(end):
    return "exit code %d" % end["exit_code"] if end else "no exit was recorded"
