"""The image runs with a read-only root file system and no capability, as root and as anybody."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from built_image import engine, keep_log

from kubelet_stand_in import StandInKubelet

# Seconds, with an image that is built before.
pytestmark = pytest.mark.timeout(1200)

NAME = "example.com/dev"
KUBELET = "/var/lib/kubelet/device-plugins"
CONFIGURATION = {
    "cdi_spec_dirs": [],
    "http_address": "",
    "resources": [{"name": NAME, "devices": [{"id": "d0", "nodes": [{"path": "/dev/null"}]}]}],
}


@pytest.fixture
def folder():
    """A short one: a socket's path has 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="ndp-"))
    (path / "etc").mkdir()
    (path / "etc/config.yaml").write_text(json.dumps(CONFIGURATION))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("user", ["0:0", "65534:65534"])
def test_it_tells_its_version(image, locked_up, user):
    done = engine("run", "--rm", *locked_up, "--user", user, image.name, "version")
    assert done.stdout == f"node-device-plugin {wheels.version()}\n"
    assert done.stderr == ""


def test_it_validates(image, locked_up, folder):
    mounted = ["--volume", f"{folder}/etc:/etc/node-device-plugin:ro"]
    done = engine("run", "--rm", *locked_up, *mounted, image.name, "validate")
    assert done.stdout == "/etc/node-device-plugin/config.yaml: valid: 1 resource, 1 device\n"
    (folder / "etc/config.yaml").write_text("resources: [{nam: x}]")
    done = engine("run", "--rm", *locked_up, *mounted, image.name, "validate", check=False)
    assert done.returncode == 1
    assert "resources[0]" in done.stderr


async def test_it_registers_and_answers_with_the_kubelets_folder_alone(image, locked_up, folder):
    container = f"image-test-{os.getpid()}"
    mounted = ["--volume", f"{folder}/etc:/etc/node-device-plugin:ro", "--volume", f"{folder}/dp:{KUBELET}"]
    async with StandInKubelet(str(folder / "dp")) as kubelet:
        engine("run", "--detach", "--name", container, *locked_up, *mounted, image.name)
        try:
            assert await kubelet.registered(NAME) == {"d0": "Healthy"}
            pod = await kubelet.allocate_pod("pod", {"main": {NAME: 1}})
            assert [device.name for device in pod.containers["main"].CDI_devices] == [f"{NAME}=d0"]
            # One process, which is Python: no shell started it, and none waits for it.
            first = int(engine("inspect", "--format", "{{.State.Pid}}", container).stdout)
            assert Path(f"/proc/{first}/cmdline").read_bytes().startswith(b"/opt/node-device-plugin/bin/python\0")
            assert Path(f"/proc/{first}/task/{first}/children").read_text() == ""
            status = engine("exec", container, "node-device-plugin", "status", check=False).stdout
            assert f"{NAME}  d0      healthy" in status
            await asyncio.to_thread(engine, "stop", "--time", "10", container)
            inspected = engine("inspect", "--format", "{{.State.ExitCode}} {{.HostConfig.ReadonlyRootfs}}", container)
            assert inspected.stdout == "0 true\n"
            await kubelet.disconnected(NAME)
        finally:
            keep_log(container)
            engine("rm", "--force", container)


def test_it_writes_nothing_where_it_could(image):
    """All bytecode is there: nothing is compiled, and nothing would be written where the root is not read-only."""
    container = f"image-test-writes-{os.getpid()}"
    run = f"run --name {container} --network none --cgroupns private {image.name} doctor"
    said = engine(*run.split(), check=False).stdout
    try:
        assert "this machine is not a Kubernetes node" in said
        changed = {line.split()[1] for line in engine("diff", container).stdout.splitlines()}
        # What the engine itself puts there: mount points.
        assert {path for path in changed if not path.startswith(("/etc", "/run", "/dev", "/proc", "/sys"))} == set()
    finally:
        engine("rm", container)
