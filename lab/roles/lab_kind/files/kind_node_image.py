#!/usr/bin/env python3
"""Choose the image of a kind cluster's nodes; build one if kind's own image cannot be pulled.

Usage: kind_node_image.py [--build] [--made]

The image is KIND_NODE_IMAGE if set, else kind's own image if the engine has it or can pull it. Otherwise the script
builds an image from the lab's node image and the programs of `lab/programs/build kubernetes`. The built image's name
contains the hash of its inputs, so an existing image is never built again. While it exists, nothing is pulled.

--build  builds missing programs; without it, the error names the command that builds them
--made   never uses kind's own image

Standard output has the image's name and its source: `given`, `present`, `pulled` or `built`. Progress goes to standard
error.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parents[3]
LAB_NODE = HERE.parents[1] / "lab_node/files"
sys.path[:0] = [str(LAB_NODE), str(LAB_NODE / "image")]

import node_image  # noqa: E402
import test_images  # noqa: E402
from image_building import NAME, BuildError, Progress, digest, engine, exists, locked, state_directory  # noqa: E402

CONTEXT = HERE / "node"
#: The release whose containerd is the newest of the lab's.
RELEASE = "forky"
BUILD = "lab/programs/build"
#: Programs of the node itself, and those that kubeadm starts as containers.
NODE_PROGRAMS = ("kubeadm", "kubelet", "kubectl")
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")


def programs(name: str, build: bool) -> pathlib.Path:
    """The directory of real programs. Raises BuildError if a program is missing and must not, or cannot, be built."""
    command = [str(CHECKOUT / BUILD), *([] if build else ["--where"]), name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    directory = pathlib.Path(done.stdout.strip())
    wanted = (*NODE_PROGRAMS, *CONTROL_PLANE) if name == "kubernetes" else (name,)
    if done.returncode or not all((directory / program).exists() for program in wanted):
        raise BuildError(f"{name} {'could not be built' if build else 'is not built'}: run {BUILD} {name}")
    return directory


def kinds_own(kind: pathlib.Path) -> str:
    """The default node image of this kind, whose program contains the name as text."""
    found = re.search(rb"kindest/node:v[\d.]+@sha256:[0-9a-f]{64}", kind.read_bytes())
    if not found:
        raise BuildError(f"{kind} does not contain the name of a node image: set KIND_NODE_IMAGE")
    name, _separator, content = found[0].decode().partition("@")
    # An engine looks an image up by its tag or its content, not both.
    return f"docker.io/{name.partition(':')[0]}@{content}"


def made_name(kubernetes: pathlib.Path) -> str:
    """The built image's name. The name of the programs' directory contains the hash of their sources."""
    files = [part for path in sorted(CONTEXT.iterdir()) for part in (path.name, path.read_bytes())]
    recipe = pathlib.Path(__file__).read_bytes()
    return f"{NAME}/kind:{digest(node_image.node_name('node', RELEASE), kubernetes.name, recipe, *files)}"


def make(image: str, kubernetes: pathlib.Path, progress: Progress) -> None:
    base, _built = node_image.ensure("node", RELEASE)
    progress.say("collecting the Kubernetes programs")
    with tempfile.TemporaryDirectory(dir=state_directory()) as scratch:
        context = pathlib.Path(scratch)
        for path in (*CONTEXT.iterdir(), *(kubernetes / program for program in NODE_PROGRAMS)):
            shutil.copy(path, context)
        version = said(kubernetes / "kubeadm", "version", "--output", "short")
        (context / "version").write_text(f"{version}\n")
        names = said(kubernetes / "kubeadm", "config", "images", "list", "--kubernetes-version", version).split()
        by_program = {name.rpartition("/")[2].partition(":")[0]: name for name in names}
        write_archive(
            context / "control-plane.tar", {by_program[program]: kubernetes / program for program in CONTROL_PLANE}
        )
        progress.say("building the image")
        recipe = str(context / "Containerfile")
        engine("build", "--network", "host", "--build-arg", f"BASE={base}", "--file", recipe, "--tag", image, scratch)


def provider() -> str:
    """The engine that kind uses."""
    done = subprocess.run([HERE / "provider"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr.strip())
    return done.stdout.strip()


def said(*command: str | pathlib.Path) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    ).stdout.strip()


def write_archive(path: pathlib.Path, images: dict[str, pathlib.Path]) -> None:
    """Write a docker-archive of images that hold one static program each."""
    manifest = []
    with tarfile.open(path, "w") as archive:
        for name, program in images.items():
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as layer:
                test_images.add_file(layer, f"usr/local/bin/{program.name}", program.read_bytes(), 0o755)
            content = hashlib.sha256(buffer.getvalue()).hexdigest()
            config = {
                "architecture": test_images.ARCHITECTURES.get(os.uname().machine, os.uname().machine),
                "os": "linux",
                "config": {"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program.name]},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{content}"]},
            }
            test_images.add_file(archive, f"{program.name}.json", json.dumps(config).encode())
            test_images.add_file(archive, f"{content}.tar", buffer.getvalue())
            manifest.append({"Config": f"{program.name}.json", "RepoTags": [name], "Layers": [f"{content}.tar"]})
        test_images.add_file(archive, "manifest.json", json.dumps(manifest).encode())


def choose(build: bool, made: bool) -> tuple[str, str]:
    """The image's name, and where it comes from."""
    if given := os.environ.get("KIND_NODE_IMAGE"):
        return given, "given"
    progress = Progress("kind")
    kind = programs("kind", build) / "kind"
    if not made and exists(own := kinds_own(kind)):
        return own, "present"
    try:
        if exists(image := made_name(programs("kubernetes", build=False))):
            return image, "present"
    except BuildError:
        pass  # built below unless kind's own image can be pulled
    if not made:
        progress.say(f"pulling {own}")
        try:
            with progress.heartbeat():
                engine("pull", "--quiet", own)
        except BuildError as error:
            progress.say(f"{str(error).strip().splitlines()[-1]}: building a node image instead")
        else:
            return own, "pulled"
    kubernetes = programs("kubernetes", build)
    image = made_name(kubernetes)
    with locked("image-kind"):
        if exists(image):
            return image, "present"
        progress.say(f"building {image}")
        with progress.heartbeat():
            make(image, kubernetes, progress)
        progress.say("ready")
    return image, "built"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--made", action="store_true")
    arguments = parser.parse_args()
    try:
        # kind's nodes run in the engine that kind uses.
        os.environ["NODE_DEVICES_ENGINE"] = provider()
        print(*choose(arguments.build, arguments.made))
    except (BuildError, OSError, subprocess.SubprocessError) as error:
        print(f"kind: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
