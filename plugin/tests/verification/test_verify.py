"""What a proof asks for."""

from typing import Any, Dict, List, Optional, cast

import pytest

from node_device_plugin import node_state
from node_device_plugin.cri import CriClient
from node_device_plugin.declaration import parse_resources
from node_device_plugin.node_state import Listing
from node_device_plugin.verification import proof_by_runtime
from node_device_plugin.verification.verify import Node, Scope, _judge, _runtime

IDS = ("d0::0", "d0::1", "d0::2", "d0::3")


@pytest.mark.parametrize(
    ("limit", "devices", "shares"), [(None, "all", 4), (None, "one", 1), (2, "all", 2), (2, "one", 1), (9, "all", 4)]
)
def test_a_proof_asks_for_no_more_than_a_container_may_have(limit: Optional[int], devices: str, shares: int) -> None:
    (resource,) = parse_resources(
        [{"name": "example.com/dev", "devices": [{"id": "d0"}], "replicas": 4, "container_limit": limit}]
    )
    listing = Listing(frozenset({"example.com/dev"}), {"example.com/dev": IDS}, [])
    row, wanted = _judge(resource, list(IDS), listing, Scope(devices, False, None, 1.0))
    assert wanted == shares
    assert row.capacity == 4


@pytest.mark.parametrize(("limit", "given"), [(None, ["a", "b"]), (1, ["a"]), (3, ["a", "b"])])
async def test_without_a_kubelet_neither(limit: Optional[int], given: List[str]) -> None:
    class Runtime:
        """Remembers what a container asks for; it ends at once."""

        asked: List[str]

        def __getattr__(self, name: str) -> Any:
            async def answer(*arguments: Any) -> Any:
                if name == "create_container":
                    self.asked = [device.name for device in arguments[1].CDI_devices]
                return None if name == "container_pid" else "id"

            return answer

    # With a limit of 1 they may well be the same path in a container.
    devices = [{"id": name, "nodes": [{"path": "/dev/%s" % name, "host_path": "/dev/null"}]} for name in "ab"]
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": devices, "container_limit": limit}])
    runtime = Runtime()
    outcome = await proof_by_runtime.prove(resource, cast(CriClient, runtime), "pause")
    assert outcome.shortcomings == ("expected a running container, found that it had ended",)
    assert runtime.asked == ["example.com/dev=%s" % name for name in given]


@pytest.mark.parametrize(
    ("name", "version", "enabled", "said"),
    [
        ("containerd", "1.7.24~ds1", False, "found off in the running daemon: a container would start without its"),
        ("containerd", "v2.2.4", False, "found off in the running daemon: a container would start without its devices"),
        ("containerd", "v2.3.0", False, "found off in the running daemon: a container could not be created with its"),
        ("containerd", "1.6.20", None, "found no word of it in the running daemon: a container would start without"),
        ("containerd", "v2.3.0", True, None),
        ("cri-o", "1.33.1", None, None),
    ],
)
async def test_a_runtime_without_cdi(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, enabled: Optional[bool], said: Optional[str]
) -> None:
    async def runtime(_socket: str) -> Dict[str, Any]:
        return {"name": name, "version": version, "cdi": {"enabled": enabled}, "sandbox_image": "pause"}

    monkeypatch.setattr(node_state, "runtime", runtime)
    device = {"id": "d0", "nodes": [{"path": "/dev/null"}]}
    resources = parse_resources([{"name": "example.com/dev", "devices": [device]}])
    problems: List[str] = []
    found = await _runtime(Node("/run/x.sock", "/var/lib/kubelet", None, None), resources, problems)
    assert found.gives_cdi is (said is None)
    assert [said in problem and problem.endswith("of example.com/dev") for problem in problems] == [True] * bool(said)
