#!/usr/bin/env python3
"""Build the lab's container images from Debian's packages, unless they exist.

Usage: node_image.py [--kind node|podman|python|controller] RELEASE...

The script first builds a root file system, then adds the files of a node (files/image). An image's name contains the
hash of its inputs, so that a changed input leads to a new image, and an existing image is not built again. Releases are
built in parallel. Progress goes to standard error. Standard output has, for each release, the image's name and `built`
or `present`.

mmdebstrap builds the root file system without a container registry. To add the packages to a pulled image instead,
set the environment variable LAB_BASE: `official` for docker.io/library/debian:RELEASE-slim, or an image's name with
RELEASE in place of the release, such as mirror.example/debian:RELEASE-slim.

Kinds: node        systemd, containerd, sshd, Python: a throwaway node
       podman      a node that also has Podman
       python      only Python, to run unit tests with a release's Python
       controller  Python, an ssh client and Podman: what a user of the collections has
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import sys

from base_image import PACKAGES, WITHOUT_NODE, base_name, build_base
from image_building import NAME, BuildError, Progress, digest, engine, exists, locked

HERE = pathlib.Path(__file__).resolve().parent
CONTEXT = HERE / "image"


def node_name(kind: str, release: str) -> str:
    files = [part for path in sorted(CONTEXT.iterdir()) for part in (path.name, path.read_bytes())]
    return f"{NAME}/node:{release}-{digest(base_name(kind, release), *files)}"


def build_node(progress: Progress, image: str, base: str) -> None:
    """Build the node's image on its base."""
    progress.say("building the node's image")
    # The steps need no network. With `host`, the engine sets up no network.
    recipe = str(CONTEXT / "Containerfile")
    engine("build", "--network", "host", "--build-arg", f"BASE={base}", "--file", recipe, "--tag", image, str(CONTEXT))


def ensure(kind: str, release: str) -> tuple[str, bool]:
    """The image's name, and whether this call built the image. Raises BuildError."""
    image = base_name(kind, release) if kind in WITHOUT_NODE else node_name(kind, release)
    if exists(image):
        return image, False
    # Two hosts of a play may need the same release at the same time.
    with locked(f"image-{kind}-{release}"):
        if exists(image):
            return image, False
        progress = Progress(release)
        progress.say(f"building {image}")
        with progress.heartbeat():
            base = base_name(kind, release)
            if not exists(base):
                build_base(progress, base, kind, release)
            if kind not in WITHOUT_NODE:
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
        engine("ps", "--quiet")  # fail before the base's build, which takes a minute
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
