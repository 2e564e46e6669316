"""Gathers a bundle's parts: the wheels, the images and the texts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from checkout import CHECKOUT, Progress, locked_wheels, wheels
from choices import MACHINES, Choice, ChoiceError

CONTROLLER_LOCK = CHECKOUT / "requirements" / "controller.txt"
IMAGE_BUILD = CHECKOUT / "packaging" / "image" / "build"
INSTALL = pathlib.Path(__file__).with_name("install")
README = pathlib.Path(__file__).with_name("README.in.md")


def cache() -> pathlib.Path:
    """Return the cache of wheels, which role node_tools also uses (node_tools_cache)."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "node-devices"


def gather(nodes: Choice, controllers: Choice, progress: Progress) -> dict[str, pathlib.Path]:
    """Return all wheels by name: the plugin's wheel, and the locked wheels for nodes and controllers."""
    with wheels.locked(cache()):
        progress.say("building the plugin's wheel")
        found = [wheels.built(cache())]
        for target in nodes.targets():
            progress.say(f"gathering wheels for nodes: {target.name}")
            found += wheels.find(target.name, cache() / "wheels")
        for target in controllers.targets():
            progress.say(f"gathering wheels for controllers: {target.name}")
            found += locked_wheels.find(CONTROLLER_LOCK, target, cache() / "wheels")
    return {wheel.path.name: wheel.path for wheel in found}


def images(
    nodes: Choice, options: Sequence[str], directory: pathlib.Path, progress: Progress, required: bool
) -> dict[str, pathlib.Path]:
    """Build the plugin's image for each architecture into a directory. Return the archives' paths by name.

    options: for packaging/image/build. required: whether to raise ChoiceError for a failed image instead of a warning.
    """
    made = {}
    for architecture in nodes.architectures:
        progress.say(f"building the image for {architecture}")
        try:
            path = _image(architecture, options, directory)
        except ChoiceError as reason:
            if required:
                raise ChoiceError(f"image for {architecture} (BUNDLE_IMAGE=no builds none): {reason}") from reason
            consequence = f"no image for {architecture} in the bundle, so the DaemonSet mode needs another image"
            print(f"bundle: warning: {consequence}: {reason}", file=sys.stderr)
        else:
            made[path.name] = path
    return made


def _image(architecture: str, options: Sequence[str], directory: pathlib.Path) -> pathlib.Path:
    command = [str(IMAGE_BUILD), "--arch", architecture, "--output", str(directory), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode or not said:
        raise ChoiceError(
            (said or [f"packaging/image/build ended with exit code {done.returncode}"])[-1].removeprefix("image: ")
        )
    return CHECKOUT / said[-1]


def files(
    nodes: Choice,
    controllers: Choice,
    collection: pathlib.Path,
    gathered: Mapping[str, pathlib.Path],
    images: Mapping[str, pathlib.Path],
) -> dict[str, pathlib.Path | bytes]:
    """Return the bundle's files by path in the bundle. collection: path of its archive."""
    return {
        "README.md": _readme(nodes, controllers, images),
        "bundle.json": _facts(nodes, controllers, collection.name, gathered, images),
        "install": INSTALL,
        "controller.txt": CONTROLLER_LOCK,
        collection.name: collection,
        **{f"wheels/{name}": path for name, path in gathered.items()},
        **{f"images/{name}": path for name, path in images.items()},
    }


def _facts(
    nodes: Choice, controllers: Choice, collection: str, gathered: Iterable[str], images: Iterable[str]
) -> bytes:
    """Return the content of bundle.json, which `install` and users read."""
    (pip,) = (name for name in gathered if name.startswith("pip-"))
    sides = {
        side: {
            "pythons": choice.pythons,
            "machines": [MACHINES[architecture] for architecture in choice.architectures],
            "glibc": choice.glibc,
        }
        for side, choice in (("nodes", nodes), ("controllers", controllers))
    }
    facts = {"version": wheels.version(), "collection": collection, "pip": pip, "images": sorted(images), **sides}
    return (json.dumps(facts, indent=1) + "\n").encode()


def _readme(nodes: Choice, controllers: Choice, images: Iterable[str]) -> bytes:
    values = {
        "version": wheels.version(),
        "nodes": str(nodes),
        "controllers": str(controllers),
        "images": ", ".join(f"`images/{name}`" for name in sorted(images))
        or "none; the DaemonSet mode needs an image from another source",
        "python": controllers.pythons[0],
    }
    text = README.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text.encode()
