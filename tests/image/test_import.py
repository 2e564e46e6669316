"""The archive is imported by real containerds, listed by CRI, and runs there."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from built_image import CHECKOUT, engine, keep_log

from node_device_plugin.runtime.client import CriClient

sys.path.insert(0, str(CHECKOUT / "lab/roles/lab_node/files"))
import node_image

# Seconds, with an image that is built before.
pytestmark = pytest.mark.timeout(1200)

#: containerd 1.6, 1.7, 2.x.
RELEASES = ("bookworm", "trixie", "forky")


@pytest.fixture(params=RELEASES)
def containerd(request, image):
    """A container in which a containerd runs: its name, and its socket's path on this side."""
    node, _ = node_image.ensure("node", request.param)
    name = f"image-test-{request.param}-{os.getpid()}"
    state = Path(tempfile.mkdtemp(prefix="ndp-"))
    run = f"run --detach --rm --name {name} --privileged --cgroupns private --network none --entrypoint containerd"
    volumes = ["--volume", f"{image.archive.parent}:/archives:ro", "--volume", f"{state}:/run/containerd"]
    engine(*run.split(), *volumes, node)
    try:
        deadline = time.monotonic() + 30
        while engine("exec", name, "ctr", "version", check=False).returncode:
            assert time.monotonic() < deadline, engine("logs", name).stderr
            time.sleep(0.1)
        yield name, str(state / "containerd.sock")
    finally:
        keep_log(name)
        engine("kill", name)
        shutil.rmtree(state, ignore_errors=True)


async def test_it_is_imported_listed_and_runs(containerd, image):
    name, socket = containerd
    ctr = ["exec", name, "ctr", "--namespace", "k8s.io"]
    archive = f"/archives/{image.archive.name}"

    async def listed():
        async with CriClient(socket) as runtime:
            return [each.id for each in await runtime.images() if image.name in each.repo_tags]

    # As `kind load image-archive` calls ctr in the node (kind, pkg/cluster/nodeutils/util.go).
    engine(*ctr, "images", "import", "--all-platforms", "--digests", "--snapshotter=overlayfs", archive)
    assert await listed() == [image.said[0].split()[1]]
    for reference in engine(*ctr, "images", "list", "--quiet").stdout.split():
        engine(*ctr, "images", "remove", "--sync", reference)
    assert await listed() == []
    engine(*ctr, "images", "import", archive)
    assert await listed() == [image.said[0].split()[1]]
    said = engine(*ctr, "run", "--rm", "--read-only", image.name, "version", "node-device-plugin", "version")
    assert said.stdout == f"node-device-plugin {wheels.version()}\n"
    # Without a command it is the image's own: entry point and `run`.
    done = engine(*ctr, "run", "--rm", "--read-only", image.name, "run", check=False)
    assert done.returncode == 1
    assert "node-device-plugin: /etc/node-device-plugin/config.yaml: No such file or directory" in done.stderr
