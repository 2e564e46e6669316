"""Chooses the base of an image, and inspects the base's Python."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import debian_base
from engine_calls import MACHINES, ask, inspect, native
from image_building import BuildError, Progress

DEBIAN = "debian"
_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")

# Use the keys of module node_preflight, because the same function chooses the wheels for nodes and bases.
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
    """A base. image: the engine's id of its image for the target architecture. native: for this machine."""

    name: str
    image: str
    native: str


def choose(wanted: str, architecture: str, progress: Progress) -> Base:
    """Return the image's base. Raises BuildError if the base is not available.

    wanted: `debian` or empty for Debian's archive, else an image with a digest. architecture: amd64 or arm64.
    """
    if native() not in MACHINES:
        raise BuildError(f"this machine is {native()}, which cannot build the image: use {' or '.join(MACHINES)}")
    if wanted in ("", DEBIAN):
        return Base(*(debian_base.ensure(each) for each in (architecture, architecture, native())))
    if not _BY_DIGEST.fullmatch(wanted):
        raise BuildError(f"IMAGE_BASE={wanted}: the image has no digest: use NAME@sha256:DIGEST, or {DEBIAN}")
    wanted_for = dict.fromkeys((architecture, native()))
    try:
        progress.say(f"pulling {wanted}")
        with progress.heartbeat():
            images = {each: _pull(wanted, each) for each in wanted_for}
    except BuildError as error:
        raise BuildError(
            f"the base {wanted} (IMAGE_BASE) cannot be pulled for "
            f"{' and, to compile bytecode, '.join(f'linux/{each}' for each in wanted_for)}: {error}"
        ) from error
    return Base(wanted, images[architecture], images[native()])


def look(base: Base) -> dict[str, Any]:
    """Run the base's Python on this machine, and return its facts: libc, python, executable, stdlib."""
    arguments = "run --rm --network none --cgroupns private --entrypoint python3"
    try:
        return json.loads(ask(*arguments.split(), base.native, "-I", "-c", _PROBE))
    except BuildError as error:
        raise BuildError(f"the base {base.name} has no working python3: {error}") from error


def _pull(name: str, architecture: str) -> str:
    """Pull an image for an architecture, and return the image's id. Raises BuildError if the pull fails."""
    ask("pull", "--quiet", "--platform", f"linux/{architecture}", name)
    return inspect(name)["Id"]
