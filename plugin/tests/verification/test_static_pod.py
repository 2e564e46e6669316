"""A proof's pod comes at once and goes without a trace."""

import json
from pathlib import Path

import pytest

from node_device_plugin.verification import static_pod


def test_it_is_there_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    pod = static_pod.manifest("node-device-proof-1", "pause", False, "example.com/dev", 2)
    with static_pod.placed(str(tmp_path), pod):
        (path,) = tmp_path.iterdir()
        container = json.loads(path.read_text())["spec"]["containers"][0]
        assert container["resources"] == {"limits": {"example.com/dev": "2"}}
        assert container["imagePullPolicy"] == "Never"
    assert list(tmp_path.iterdir()) == []


def test_it_goes_when_the_proof_fails(tmp_path: Path) -> None:
    pod = static_pod.manifest("node-device-proof-1", "pause", True, "example.com/dev", 1)
    with pytest.raises(RuntimeError), static_pod.placed(str(tmp_path), pod):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_proof_are_ours_to_remove_and_nothing_else(tmp_path: Path) -> None:
    for name in ("node-device-proof-1.json", ".node-device-proof-2.json", "etcd.yaml", "my-node-device-proof.yaml"):
        (tmp_path / name).touch()
    static_pod.remove_leftovers(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etcd.yaml", "my-node-device-proof.yaml"]
    static_pod.remove_leftovers(str(tmp_path / "none"))
