"""The measured processes (the plugin and the floor), with their CPU time and memory."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import time
from types import TracebackType

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Measured:
    """Runs a Python module as a process inside a ``with`` block. log: the file for the process's output."""

    def __init__(self, *arguments: str, log: str) -> None:
        self._arguments = arguments
        self._log = log

    def __enter__(self) -> Measured:
        path = os.pathsep.join([os.path.join(_ROOT, "plugin"), _ROOT])
        self.started = time.monotonic()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu(self) -> float:
        """Return the CPU time of all threads so far, in seconds."""
        nanoseconds = 0
        for path in glob.glob("/proc/%d/task/*/schedstat" % self.pid):
            with open(path) as file:
                nanoseconds += int(file.read().split()[0])
        return nanoseconds / 1e9

    def resident(self) -> float:
        """Return the resident memory in MiB."""
        with open("/proc/%d/status" % self.pid) as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        raise RuntimeError("process %d has ended" % self.pid)


def plugin(config: str, log: str) -> Measured:
    """Return the plugin's process with a configuration file."""
    return Measured("node_device_plugin", "run", "--config", config, log=log)


def floor(directory: str, answers: str, log: str) -> Measured:
    """Return the bare server's process; see floor.py."""
    return Measured("bench.floor", directory, answers, log=log)
