"""What is discovered, as a verification expects it of the kubelet and of a container."""

import importlib
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from node_device_plugin.declaration import Resource, parse_configuration
from node_device_plugin.devices.discovery import discover
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.kubelet.pod_resources import Holder
from node_device_plugin.kubelet.queries import Listing
from node_device_plugin.runtime import queries as runtime_queries
from node_device_plugin.verification import proof_by_kubelet
from node_device_plugin.verification.looking import Outcome
from node_device_plugin.verification.report import Report
from node_device_plugin.verification.verify import Node, Scope, verify

#: The module, whose name in its package is its function.
_VERIFY = importlib.import_module("node_device_plugin.verification.verify")


class Kubelet:
    """A node with its device nodes below ``root``, and a kubelet that lists these ids. Proofs see what they ask for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, allocatable: Dict[str, Sequence[str]]) -> None:
        self.allocatable = {name: tuple(ids) for name, ids in allocatable.items()}
        self.holders: List[Holder] = []
        self.asked_for: Dict[str, int] = {}
        self.proven_of: Dict[str, List[str]] = {}
        monkeypatch.setattr(_VERIFY, "discover", lambda resources, **more: discover(resources, str(root), **more))
        monkeypatch.setattr(kubelet_queries, "listing", self._listing)
        monkeypatch.setattr(runtime_queries, "runtime", self._runtime)
        monkeypatch.setattr(proof_by_kubelet, "prove", self._prove)
        monkeypatch.setattr(_VERIFY, "unhealthy_reason", lambda device: None)

    async def _listing(self, *where: object) -> Listing:
        return Listing(frozenset(self.allocatable), self.allocatable, self.holders)

    async def _runtime(self, socket: str) -> Dict[str, Any]:
        return {"name": "containerd", "version": "2.1.9", "cdi": {"enabled": True}, "sandbox_image": "pause"}

    async def _prove(self, resource: Resource, shares: int, *how: object) -> Outcome:
        self.asked_for[resource.name] = shares
        self.proven_of[resource.name] = [device.id for device in resource.devices]
        return Outcome(tuple(self.proven_of[resource.name][:shares]), ())


async def verified(tmp_path: Path, timeout: float = 0.0) -> Report:
    configuration = parse_configuration(
        {
            "resources": [
                {
                    "name": "example.com/lamp",
                    "discover": {"paths": ["/dev/lamp*"]},
                    "devices": [{"id": "first", "nodes": [{"path": "/dev/first"}]}],
                    "env": {"LAMP_{index}": "{id}"},
                }
            ]
        }
    )
    node = Node("/none.sock", str(tmp_path), str(tmp_path), None)
    return await verify(configuration, node, Scope("all", False, None, timeout))


def plug(tmp_path: Path, *names: str) -> None:
    (tmp_path / "dev").mkdir(exist_ok=True)
    for name in names:
        (tmp_path / "dev" / name).touch()


async def test_what_is_discovered_is_expected_beside_what_is_declared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp10", "lamp2")
    kubelet = Kubelet(monkeypatch, tmp_path, {"example.com/lamp": ["lamp2", "first", "lamp10"]})
    report = await verified(tmp_path)
    (row,) = report.rows
    assert (row.capacity, row.healthy, row.state, report.problems) == (3, 3, "proven", [])
    assert row.seen == ("first", "lamp2", "lamp10")
    assert kubelet.asked_for == {"example.com/lamp": 3}


async def test_what_the_kubelet_lacks_of_what_is_discovered_or_has_beyond_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp0", "lamp1")
    kubelet = Kubelet(monkeypatch, tmp_path, {"example.com/lamp": ["first", "lamp0", "lamp7"]})
    report = await verified(tmp_path)
    says = "expected 3 healthy with the kubelet, found 3 (missing: lamp1) (not declared: lamp7)"
    assert report.problems == ["example.com/lamp: " + says]
    assert [(row.state, row.detail) for row in report.rows] == [("failed", says)]
    assert kubelet.asked_for == {}


async def test_what_a_pod_holds_of_what_is_discovered_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp0")
    kubelet = Kubelet(monkeypatch, tmp_path, {"example.com/lamp": ["first", "lamp0"]})
    kubelet.holders = [Holder("default", "viewer", "main", "example.com/lamp", ("lamp0",))]
    assert (await verified(tmp_path)).problems == []
    assert kubelet.asked_for == {"example.com/lamp": 1}


async def test_a_kubelet_that_needs_a_moment_for_what_was_plugged_in_gets_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp0")
    kubelet = Kubelet(monkeypatch, tmp_path, {"example.com/lamp": ["first"]})
    looks = []
    listing = kubelet._listing

    async def later(*where: object) -> Listing:
        looks.append(1)
        if len(looks) == 3:
            kubelet.allocatable["example.com/lamp"] = ("first", "lamp0")
        return await listing()

    monkeypatch.setattr(kubelet_queries, "listing", later)
    report = await verified(tmp_path, timeout=30.0)
    assert (len(looks), report.problems) == (3, [])
