"""What the kubelet gives containers again by their paths."""

import pytest

from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.checkpoint import Checkpoint, PodDevices
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api


def entry(pod: str, path: str, *ids: str) -> PodDevices:
    devices = [api.DeviceSpec(host_path=path, container_path=path)]
    answer = api.ContainerAllocateResponse(devices=devices)
    return PodDevices(pod, "main", "example.com/x", ids, answer.SerializeToString())


def test_containers_of_the_same_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint may still have a pod that ended, in any order."""
    entries = (entry("now", "/dev/b", "a"), entry("ended", "/dev/a", "a"), entry("other", "/dev/c", "a", "c"))
    monkeypatch.setattr(queries, "read_checkpoint", lambda _directory: Checkpoint({}, entries))
    found = queries.given_paths("", "example.com/x", ["a"])
    assert set(found) == {frozenset(["/dev/a"]), frozenset(["/dev/b"])}
