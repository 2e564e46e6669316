"""Questions to the container engine, and what it makes of images."""

from __future__ import annotations

import json
import pathlib
import platform
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
# A checkout holds the lab; beside an installed collection it is a collection of its own.
sys.path[:0] = [str(CHECKOUT / lab / "roles/lab_node/files") for lab in ("lab", "../lab")]

from image_building import ENGINE, BuildError  # noqa: E402

#: What `uname -m` says, by what images call it.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def native() -> str:
    """This machine's architecture, as images call it."""
    machine = platform.machine()
    return next((name for name, known in MACHINES.items() if known == machine), machine)


def ask(*arguments: str, given: bytes | None = None) -> bytes:
    """What one of the engine's commands says; BuildError with its last line if it fails. given: its standard input."""
    done = subprocess.run([ENGINE, *arguments], input=given, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise BuildError(f"{arguments[0]}: {said.splitlines()[-1].removeprefix('Error: ')}")
    return done.stdout


def is_podman() -> bool:
    """Whether the engine is podman, which can be told the time of what it builds."""
    return ask("--version").startswith(b"podman")


def inspect(image: str) -> dict:
    """What the engine says of an image that it has, else BuildError."""
    return json.loads(ask("image", "inspect", image))[0]
