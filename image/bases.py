"""Which base an image is built on, and what Python it has."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, NamedTuple

import debian_base
from engine_calls import MACHINES, ask, inspect, native
from image_building import BuildError, Progress

#: What is taken where nothing else is asked for, if a registry answers.
OFFICIAL = "docker.io/library/python:3.13-slim-trixie"
DEBIAN = "debian"

# The keys are those of the module node_facts: what says which wheels fit a node says which fit a base.
_PROBE = """
import json, os, sys, sysconfig
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION")
except (ValueError, OSError):
    libc = ""
print(json.dumps({
    "libc": libc or "",
    "python": {"version": sys.version_info[:3]},
    "executable": os.path.realpath(sys.executable),
    "stdlib": sysconfig.get_path("stdlib"),
}))
"""


class Base(NamedTuple):
    """A base: its name, and the engine's id of it for the image's architecture, and for this machine's."""

    name: str
    image: str
    native: str


def choose(wanted: str, architecture: str, progress: Progress) -> Base:
    """The base to build on. BuildError where it cannot be had.

    wanted: `debian`, the name of an image, or nothing for the official one; where that cannot be pulled, Debian's
    archive is taken instead, and a line on standard error says so. architecture: amd64 or arm64.
    """
    if native() not in MACHINES:
        raise BuildError(f"an image is built on a machine with {' or '.join(MACHINES)}: this one is {native()}")
    if wanted == DEBIAN:
        return _debian(architecture)
    name = wanted or OFFICIAL
    wanted_for = dict.fromkeys((architecture, native()))
    try:
        # This machine's own comes last: it is what the name then stands for, as without us.
        progress.say(f"pulling {name}")
        with progress.heartbeat():
            images = {each: _pull(name, each) for each in wanted_for}
    except BuildError as error:
        if wanted:
            raise BuildError(
                f"the base {name} (IMAGE_BASE) cannot be had for "
                f"{' and, to compile with, '.join(f'linux/{each}' for each in wanted_for)}: {error}"
            ) from error
        print(f"image: no {name}, so the base is made from Debian's archive ({error})", file=sys.stderr)
        return _debian(architecture)
    return Base(name, images[architecture], images[native()])


def look(base: Base) -> dict[str, Any]:
    """What the base's Python is (libc, python, executable, stdlib), by running it on this machine."""
    arguments = "run --rm --network none --cgroupns private --entrypoint python3"
    try:
        return json.loads(ask(*arguments.split(), base.native, "-I", "-c", _PROBE))
    except BuildError as error:
        raise BuildError(f"the base {base.name} has no python3 that runs: {error}") from error


def _debian(architecture: str) -> Base:
    images = [debian_base.ensure(each) for each in (architecture, native())]
    return Base(images[0], *images)


def _pull(name: str, architecture: str) -> str:
    """The id of an image for an architecture: the registry's, else the engine's own; BuildError where none has it."""
    try:
        ask("pull", "--quiet", "--platform", f"linux/{architecture}", name)
    except BuildError:
        with contextlib.suppress(BuildError):
            if (here := inspect(name))["Architecture"] == architecture:
                return here["Id"]
        raise
    return inspect(name)["Id"]
