"""An image that a test builds, under a name of its own, on the base from Debian's archive; and what is in it."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
ENGINE = CHECKOUT / "lab/roles/lab_node/files/engine"
PROGRAM = CHECKOUT / "packaging/image/build"
#: CI keeps it if a test failed.
EVIDENCE = CHECKOUT / ".evidence/image"
NAME = "localhost/node-devices/image-test"


class Built(NamedTuple):
    """A built image. name: with the tag. said: what the build printed. archive: its path."""

    name: str
    said: list[str]
    archive: Path

    def manifest(self) -> dict:
        with tarfile.open(self.archive) as archive:
            return json.load(archive.extractfile("manifest.json"))[0]

    def configuration(self) -> dict:
        with tarfile.open(self.archive) as archive:
            return json.load(archive.extractfile(self.manifest()["Config"]))

    def files(self, layer: int) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
        """What a layer holds, by path (without a leading ./)."""
        name = self.manifest()["Layers"][layer]
        with tarfile.open(self.archive) as archive, tarfile.open(fileobj=archive.extractfile(name)) as content:
            return {
                member.name.removeprefix("./"): (member, content.extractfile(member).read() if member.isreg() else b"")
                for member in content
                if not member.isdir()
            }


def engine(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one of the engine's commands."""
    done = subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def keep_log(container: str) -> None:
    """A container's output, for whoever looks why a test failed."""
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    logs = engine("logs", container, check=False)
    (EVIDENCE / f"{container}.log").write_text(logs.stdout + logs.stderr)


def build(output: Path, *arguments: str, **options: int) -> Built:
    """Build an image; options: of subprocess.run."""
    done = subprocess.run(
        [sys.executable, PROGRAM, "--base", "debian", "--name", NAME, "--output", output, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        **options,
    )
    said = done.stdout.splitlines()
    return Built(said[0].split()[0], said, Path(said[-1]))
