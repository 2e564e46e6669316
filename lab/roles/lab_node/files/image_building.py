"""What images are built with: the engine's commands, mmdebstrap, and progress that is never silent for long."""

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
#: What the names of all images begin with.
NAME = "localhost/node-devices"
# How long a step may be silent, in seconds.
HEARTBEAT = 5


class BuildError(Exception):
    """A step failed; the message holds its last lines."""


class Progress:
    """Lines of one release's build, each with the seconds since it began; also where there is nothing new."""

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
        """Repeat the last line with a fresh time while the block runs."""
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
    """Return a short hash of the parts, none of which can run into the next."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:12]


def state_directory() -> pathlib.Path:
    """The directory with the lab's own files, made if it is missing."""
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
    """Run one of the engine's commands; raise BuildError with what it said if it fails."""
    command = [ENGINE, *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{result.stdout}")


def run_reporting(progress: Progress, command: list[str], stdout: int | None = None) -> subprocess.Popen[str]:
    """Run a command whose standard error is its progress; raise BuildError with the last lines if it fails."""
    last: list[str] = []
    # A session of its own: mmdebstrap that fails sends a SIGHUP to its whole process group, which would be make's too.
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
    """Return mmdebstrap's command line, with root's powers; raise BuildError where it is not installed."""
    if not shutil.which("mmdebstrap", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
        raise BuildError("mmdebstrap is missing: apt-get install mmdebstrap")
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), "mmdebstrap", *arguments]
