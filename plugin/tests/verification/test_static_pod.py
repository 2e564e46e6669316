"""A proof's pod comes at once and goes without a trace."""

import json
from pathlib import Path

import pytest

from node_device_plugin.verification import static_pod


def test_it_is_there_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    pod = static_pod.manifest("node-device-proof-1", "pause", "example.com/dev", 2)
    with static_pod.placed(str(tmp_path), pod):
        (path,) = tmp_path.iterdir()
        spec = json.loads(path.read_text())["spec"]
        container = spec["containers"][0]
        # The kubelet ends other pods for what a static pod asks for and lacks.
        assert container["resources"] == {"limits": {"example.com/dev": "2"}}
        assert not [field for field in spec if "riority" in field or "reempt" in field]
        assert container["imagePullPolicy"] == "Never"
        # A new node may have no pod network yet.
        assert spec["hostNetwork"] is True
    assert list(tmp_path.iterdir()) == []


def test_it_goes_when_the_proof_fails(tmp_path: Path) -> None:
    pod = static_pod.manifest("node-device-proof-1", "pause", "example.com/dev", 1)
    with pytest.raises(RuntimeError), static_pod.placed(str(tmp_path), pod):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_proof_are_ours_to_remove_and_nothing_else(tmp_path: Path) -> None:
    for name in ("node-device-proof-1.json", ".node-device-proof-2.json", "etcd.yaml", "my-node-device-proof.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "node-device-proof-dir").mkdir()
    assert static_pod.remove_leftovers(str(tmp_path)) == ["node-device-proof-1", "node-device-proof-2"]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["etcd.yaml", "my-node-device-proof.yaml", "node-device-proof-dir"]
    assert static_pod.remove_leftovers(str(tmp_path)) == []
    assert static_pod.remove_leftovers(str(tmp_path / "none")) == []
