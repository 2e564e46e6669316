#!/usr/bin/env python3
"""Build the lab's container images from Debian's archive, if they are not there yet.

Usage: node_image.py [--kind node|engines|python] RELEASE...

Each image is made in two steps: a root file system by mmdebstrap, then what turns it into a node (files/image). Both
are named by the hash of what goes into them, so an image that exists is never built again, and a change is never
missed. Releases are built side by side. Progress goes to standard error; standard output has, for each release, the
image's name and `built` or `present`.

Kinds: node    systemd, containerd, sshd, Python: a throwaway node
       engines a node with Podman and Docker, too
       python  Python and nothing else: for running unit tests under a release's Python
"""

from __future__ import annotations

import argparse
import concurrent.futures
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

HERE = pathlib.Path(__file__).resolve().parent
ENGINE = str(HERE / "engine")
CONTEXT = HERE / "image"
STATE = HERE.parents[2] / ".lab"
NAME = "localhost/node-devices"

# No pip and no ensurepip: a bare Debian has neither.
_NODE = (
    "busybox-static ca-certificates containerd containernetworking-plugins dbus iproute2 openssh-server procps"
    " python3 runc systemd systemd-sysv udev"
)
PACKAGES = {
    "node": _NODE,
    "engines": f"{_NODE} docker.io docker-cli podman",
    "python": "ca-certificates python3 python3-venv",
}
# What nobody reads in a throwaway container; it is a third of the size and of the time.
MMDEBSTRAP_OPTIONS = [
    "--variant=minbase",
    "--aptopt=Acquire::Check-Valid-Until false",
    "--aptopt=Acquire::Languages none",
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/lib/udev/hwdb.d/*",
    "--dpkgopt=path-exclude=/usr/lib/cni/*",
    "--dpkgopt=path-include=/usr/lib/cni/loopback",
    # A pod network within a node, and its addresses: role lab_cluster.
    "--dpkgopt=path-include=/usr/lib/cni/ptp",
    "--dpkgopt=path-include=/usr/lib/cni/host-local",
]
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


def base_name(kind: str, release: str) -> str:
    inputs = digest(release, PACKAGES[kind], *MMDEBSTRAP_OPTIONS)
    return f"{NAME}/{'python' if kind == 'python' else 'base'}:{release}-{inputs}"


def node_name(kind: str, release: str) -> str:
    files = [part for path in sorted(CONTEXT.iterdir()) for part in (path.name, path.read_bytes())]
    return f"{NAME}/node:{release}-{digest(base_name(kind, release), *files)}"


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


def build_base(progress: Progress, image: str, kind: str, release: str) -> None:
    """Make a root file system of Debian packages and import it."""
    packages = PACKAGES[kind].replace(" ", ",")
    bootstrap = mmdebstrap(*MMDEBSTRAP_OPTIONS, f"--include={packages}", release, "-")
    importing = subprocess.Popen(
        [ENGINE, "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert importing.stdin is not None
    failure = None
    try:
        run_reporting(progress, bootstrap, stdout=importing.stdin.fileno())
        progress.say("importing")
    except BuildError as error:
        failure = error
    imported, problem = importing.communicate()
    if importing.returncode:
        # Each can be the other's reason: an import that ends early, or half an archive.
        raise BuildError(f"importing {image} failed:\n{problem}{failure or ''}")
    # Only a whole root file system gets the name.
    if failure:
        engine("image", "rm", imported.strip())
        raise failure
    engine("tag", imported.strip(), image)


def build_node(progress: Progress, image: str, base: str) -> None:
    """Add what makes the base a node."""
    progress.say("building the node's image")
    # The steps need no network; `host` is the one choice that needs no network set up either.
    recipe = str(CONTEXT / "Containerfile")
    engine("build", "--network", "host", "--build-arg", f"BASE={base}", "--file", recipe, "--tag", image, str(CONTEXT))


def ensure(kind: str, release: str) -> tuple[str, bool]:
    """Return the image's name, and whether it had to be built."""
    image = base_name(kind, release) if kind == "python" else node_name(kind, release)
    if exists(image):
        return image, False
    STATE.mkdir(exist_ok=True)
    # Two hosts of a play may want the same release at the same time.
    with open(STATE / f"image-{kind}-{release}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if exists(image):
            return image, False
        progress = Progress(release)
        progress.say(f"making {image}")
        with progress.heartbeat():
            base = base_name(kind, release)
            if not exists(base):
                build_base(progress, base, kind, release)
            if kind != "python":
                build_node(progress, image, base)
        progress.say("ready")
    return image, True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(PACKAGES), default="node")
    parser.add_argument("releases", metavar="RELEASE", nargs="+")
    arguments = parser.parse_args()
    status = 0
    try:
        engine("ps", "--quiet")  # before the minute that a base takes
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        futures = {release: pool.submit(ensure, arguments.kind, release) for release in arguments.releases}
        for release, future in futures.items():
            try:
                image, built = future.result()
            except BuildError as error:
                print(f"{release}: {error}", file=sys.stderr)
                status = 1
            else:
                print(image, "built" if built else "present")
    return status


if __name__ == "__main__":
    sys.exit(main())
