"""The proof by a static pod: which container counts, and what does not prove a resource."""

import errno
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.kubelet.pod_resources import Holder
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.verification import looking, proof_by_kubelet, static_pod
from node_device_plugin.verification.looking import Outcome, look, look_at_allocated
from node_device_plugin.verification.scope import Scope
from node_device_plugin.wire import cri_v1_pb2 as api

NAME = "node-device-proof-0badcafe"
#: Reads the journal, which no other test does.
WHY = proof_by_kubelet._why


class Node:
    """A kubelet that gives ``ids`` to the proof's pod, and a runtime with its container."""

    def __init__(self) -> None:
        self.ids: Sequence[str] = ("l0", "l1")
        self.status = api.ContainerStatus(started_at=1)
        self.ends = False

    async def containers(self, labels: Mapping[str, str]) -> list[api.Container]:
        assert labels == {"io.kubernetes.container.name": static_pod.CONTAINER}
        return [api.Container(id="c", labels={"io.kubernetes.pod.name": NAME + "-node1"})]

    async def container_status(self, container: str) -> api.ContainerStatus:
        return self.status

    async def container_pid(self, container: str) -> int:
        return 7

    async def pod_sandboxes(self, _labels: object) -> list[api.PodSandbox]:
        return []

    async def __aenter__(self) -> "Node":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def holders(self) -> list[Holder]:
        return [Holder("kube-system", NAME + "-node1", "proof", "example.com/lamp", tuple(self.ids))]

    async def look(
        self, pid: int, _annotations: object, resource: Resource, devices: Sequence[Device], _settle: float
    ) -> Outcome:
        assert pid == 7
        if self.ends:
            raise ProcessLookupError("the container's process 7 has ended")
        return Outcome(tuple(device.id for device in devices), ())


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()

    async def why(_name: str) -> str:
        return "; last line of the kubelet's log: no"

    monkeypatch.setattr(proof_by_kubelet, "PodResourcesClient", lambda _socket: made)
    monkeypatch.setattr(looking, "look", made.look)
    monkeypatch.setattr(proof_by_kubelet, "_why", why)
    monkeypatch.setattr(static_pod, "new_name", lambda: NAME)
    return made


async def prove(node: Node, path: Path) -> Outcome:
    devices = [{"id": "l0"}, {"id": "l1"}]
    (lamp,) = parse_resources([{"name": "example.com/lamp", "devices": devices, "env": {"LAMP_{index}": "{id}"}}])
    scope = Scope("/none.sock", "/none", None, None, "all", False, None, 0.0)
    return await proof_by_kubelet.prove(lamp, 2, cast(CriClient, node), str(path), "pause", scope)


async def test_a_container_that_shows_as_many_devices_as_it_asked_for_is_a_proof(node: Node, tmp_path: Path) -> None:
    assert await prove(node, tmp_path) == Outcome(("l0", "l1"), ())


@pytest.mark.parametrize("ids", [(), ("l0",), ("l0", "l1", "l2")])
async def test_too_few_devices_or_too_many_prove_nothing(node: Node, tmp_path: Path, ids: Sequence[str]) -> None:
    node.ids = ids
    assert await prove(node, tmp_path) == Outcome((), ("expected 2 allocated devices, found %d" % len(ids),))


@pytest.mark.parametrize("status", [{}, {"started_at": 1, "finished_at": 2}])
async def test_a_container_that_has_not_begun_or_has_ended_is_waited_for(
    node: Node, tmp_path: Path, status: Mapping[str, int]
) -> None:
    node.status = api.ContainerStatus(**status)
    says = "expected a running container, found none after 0 s; last line of the kubelet's log: no"
    assert await prove(node, tmp_path) == Outcome((), (says,))


@pytest.mark.parametrize("words", ["requested number of devices unavailable for x", "no healthy devices present"])
async def test_a_share_that_another_pod_took_meanwhile_is_no_failure(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    async def why(_name: str) -> str:
        return "; last line of the kubelet's log: " + words

    monkeypatch.setattr(proof_by_kubelet, "_why", why)
    node.status = api.ContainerStatus()
    says = "expected a running container, found none after 0 s; last line of the kubelet's log: " + words
    assert await prove(node, tmp_path) == Outcome((), (), says)


@pytest.mark.parametrize(
    ("journal", "says"),
    [
        ("", ""),
        ("no image\\n", "; last line of the kubelet's log: no image"),
        ("no image\\npulled\\nno room\\n \\n", "; last line of the kubelet's log: no room"),
    ],
    ids=["no line", "one line", "lines"],
)
async def test_where_there_is_no_container_the_kubelets_last_line_of_it_is_told(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: str, says: str
) -> None:
    journalctl = tmp_path / "bin" / "journalctl"
    journalctl.parent.mkdir()
    journalctl.write_text("#!/bin/sh\nprintf '%s'\n" % journal)
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(journalctl.parent))
    monkeypatch.setattr(proof_by_kubelet, "_why", WHY)
    node.status = api.ContainerStatus()
    assert await prove(node, tmp_path) == Outcome((), ("expected a running container, found none after 0 s" + says,))


async def test_a_container_that_ends_while_it_is_looked_into_proves_nothing(node: Node, tmp_path: Path) -> None:
    node.ends = True
    says = "the container's process 7 has ended; last line of the kubelet's log: no"
    assert await prove(node, tmp_path) == Outcome((), (says,))


def refused(*arguments: Any, **options: Any) -> Any:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), "/somewhere/else")


async def test_what_cannot_be_placed_is_unproven_and_what_cannot_be_removed_is_a_problem(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / (NAME + ".json")
    says = "cannot remove %s: Operation not permitted: remove it, or its pod stays" % leftover
    with monkeypatch.context() as fault:
        fault.setattr(os, "unlink", refused)
        assert await prove(node, tmp_path) == Outcome((), (says,))
    says = "cannot write the proof's static pod to %s: No such file or directory" % (tmp_path / "none")
    assert await prove(node, tmp_path / "none") == Outcome((), (), says)


async def test_an_error_while_the_container_is_looked_into_is_called_what_it_is(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "look", look)
    monkeypatch.setattr(proof_by_kubelet, "look_at_allocated", functools.partial(look_at_allocated, settle=0.0))
    monkeypatch.setattr(looking, "compared", refused)
    says = "cannot inspect the container: /somewhere/else: Operation not permitted"
    assert await prove(node, tmp_path) == Outcome((), (says,))
