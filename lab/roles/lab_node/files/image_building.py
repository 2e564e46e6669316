"""Helpers of the image builds: engine commands, mmdebstrap, and progress messages."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_HERE = pathlib.Path(__file__).resolve().parent
ENGINE = str(_HERE / "engine")
#: Prefix of all images' names.
NAME = "localhost/node-devices"
# Seconds after which a silent step repeats its message.
HEARTBEAT = 5


class BuildError(Exception):
    """A step failed. The message contains the last lines of the step's output."""


class Progress:
    """Prints the steps of a release's build with the seconds since its start."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.step = ""
        self.printed = self.started

    def say(self, step: str) -> None:
        self.step = step
        self.printed = time.monotonic()
        sys.stderr.write(f"{self.title:>9} {self.printed - self.started:4.0f} s  {step}\n")

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Repeat the last line with the current time while the block runs."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(1):
                if time.monotonic() - self.printed >= HEARTBEAT:
                    self.say(self.step)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def digest(*parts: str | bytes) -> str:
    """A short hash of the parts and of their lengths."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:12]


def state_directory() -> pathlib.Path:
    """The directory of the lab's own files, created if missing."""
    said = subprocess.run([_HERE / "state_directory"], stdout=subprocess.PIPE, text=True, check=True).stdout
    directory = pathlib.Path(said.rstrip("\n"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold one of the lab's locks while the block runs."""
    with open(state_directory() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def exists(image: str) -> bool:
    return subprocess.run([ENGINE, "image", "inspect", image], capture_output=True, check=False).returncode == 0


def engine(*arguments: str) -> None:
    """Run an engine command. Raises BuildError with its output if it fails."""
    command = [ENGINE, *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{result.stdout}")


def run_reporting(progress: Progress, command: list[str], stdout: int | None = None) -> subprocess.Popen[str]:
    """Run a command whose standard error reports progress. Raises BuildError with the last lines if it fails."""
    last: list[str] = []
    # Start a new session: a failed mmdebstrap sends SIGHUP to its process group, which would otherwise include make.
    process = subprocess.Popen(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        last = [*last[-19:], line.rstrip()]
        if line.startswith("I: ") and line.rstrip().endswith("...") and "tempdir" not in line:
            progress.say(line[3:].rstrip(" .\n"))
    if process.wait():
        raise BuildError("\n".join([f"{command[0]} failed:", *last]))
    return process


def mmdebstrap(*arguments: str) -> list[str]:
    """The command line that runs mmdebstrap as root. Raises BuildError if mmdebstrap is not installed."""
    if not shutil.which("mmdebstrap", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
        raise BuildError("mmdebstrap is missing: apt-get install mmdebstrap")
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), "mmdebstrap", *arguments]
