"""Calls the container engine."""

from __future__ import annotations

import json
import pathlib
import platform
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
# In a checkout, the lab is a subdirectory. Beside an installed collection, the lab is a separate collection.
sys.path[:0] = [str(CHECKOUT / lab / "roles/lab_node/files") for lab in ("lab", "../lab")]

from image_building import ENGINE, BuildError  # noqa: E402

#: Maps architectures of images to machine names of `uname -m`.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def native() -> str:
    """Return this machine's architecture in the notation of images."""
    machine = platform.machine()
    return next((name for name, known in MACHINES.items() if known == machine), machine)


def ask(*arguments: str, given: bytes | None = None) -> bytes:
    """Return the output of an engine command. Raises BuildError with the last error line. given: standard input."""
    done = subprocess.run([ENGINE, *arguments], input=given, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise BuildError(f"{arguments[0]}: {said.splitlines()[-1].removeprefix('Error: ')}")
    return done.stdout


def is_podman() -> bool:
    """Return whether the engine is podman."""
    return ask("--version").startswith(b"podman")


def inspect(image: str) -> dict:
    """Return the engine's data of a local image. Raises BuildError if the image does not exist."""
    return json.loads(ask("image", "inspect", image))[0]
