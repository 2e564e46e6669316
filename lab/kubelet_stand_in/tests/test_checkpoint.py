"""The checkpoint is compatible with the real kubelet, for reading and for writing."""

import json
import os
import pathlib

import pytest

from kubelet_stand_in import StandInKubelet, checkpoint
from node_device_plugin.kubelet.checkpoint import CheckpointError, PodDevices, read_checkpoint
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

RESOURCE = "example.com/serial"

#: A file that kubelet 1.36.2 wrote.
OF_A_KUBELET = os.path.join(os.path.dirname(__file__), "kubelet_internal_checkpoint.json")


@pytest.fixture
def recorded(short_path):
    with open(OF_A_KUBELET) as file:
        (short_path / "kubelet_internal_checkpoint").write_text(file.read())
    return str(short_path)


def test_the_checksum_is_the_kubelets(recorded):
    assert checkpoint.read(recorded) is not None


def test_a_file_of_the_stand_in_is_the_same_as_the_kubelets(recorded):
    with open(OF_A_KUBELET) as file:
        expected = file.read()
    checkpoint.write(recorded, checkpoint.read(recorded))
    with open(os.path.join(recorded, "kubelet_internal_checkpoint")) as file:
        assert file.read() == expected.strip()


def test_a_kubelets_file_is_read(recorded):
    data = read_checkpoint(recorded)
    assert data.registered == {"transcripts.example.com/a": ("a0", "a1")}
    [entry] = data.pod_devices
    assert isinstance(entry, PodDevices)
    assert (entry.container, entry.resource, entry.device_ids) == ("main", "transcripts.example.com/a", ("a0", "a1"))
    answer = api.ContainerAllocateResponse.FromString(entry.allocate_response)
    assert answer.envs["DEVICES"] == "a0,a1"


def test_no_file_is_no_checkpoint(short_path):
    assert read_checkpoint(str(short_path)) is None
    assert checkpoint.read(str(short_path)) is None


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"Data": {"RegisteredDevices": 1}}', '{"Data": {}, "Checksum": 1}']
)
def test_a_file_of_another_form_is_refused(short_path, content):
    path = short_path / "kubelet_internal_checkpoint"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=str(path)):
        read_checkpoint(str(short_path))
    with pytest.raises(checkpoint.CorruptCheckpoint):
        checkpoint.read(str(short_path))


async def test_a_corrupt_checkpoint_is_left_out_of_account(recorded, caplog):
    path = pathlib.Path(recorded, "kubelet_internal_checkpoint")
    document = json.loads(path.read_text())
    document["Checksum"] += 1
    path.write_text(json.dumps(document))
    async with StandInKubelet(recorded, root=os.path.join(recorded, "root")) as kubelet:
        assert kubelet.manager.state.healthy == {}
        assert "checkpoint is corrupted" in caplog.text


async def test_the_checkpoint_is_replayed(folder, plugins):
    kubelet = StandInKubelet(folder)
    await kubelet.start()
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    pod = await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})
    await kubelet.restart()
    assert kubelet.manager.state.held_ids(pod.uid, "main", RESOURCE) == {"a0"}
    assert kubelet.devices(RESOURCE) == {}
    # The file still has the devices from before the restart.
    assert kubelet.checkpoint().registered == {RESOURCE: ("a0",)}
    await kubelet.stop()
