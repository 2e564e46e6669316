"""Whose journal doctor names: of the container runtime's service, and of the one that the kubelet is a part of."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_device_plugin.diagnostics.runtime_service import kubelet_service, service_of
from node_device_plugin.support.kubelet_process import SOCKETS, likely_socket

K3S, CONTAINERD = "/run/k3s/containerd/containerd.sock", "/run/containerd/containerd.sock"


@pytest.mark.parametrize(
    ("path", "there", "service", "kubelet"),
    [
        (CONTAINERD, [], "containerd", "kubelet"),
        ("/run/crio/crio.sock", [], "crio", "kubelet"),
        ("/var/run/crio/crio.sock", [], "crio", "kubelet"),
        ("/run/cri-dockerd.sock", [], "cri-docker", "kubelet"),
        (K3S, [], "k3s", "k3s"),
        ("/run/k3s/cri-dockerd/cri-dockerd.sock", [], "k3s", "k3s"),
        (K3S, ["etc/systemd/system/k3s-agent.service"], "k3s-agent", "k3s-agent"),
        (K3S, ["usr/local/lib/systemd/system/rke2-server.service"], "rke2-server", "rke2-server"),
        ("/run/k0s/containerd.sock", ["etc/systemd/system/k0scontroller.service"], "k0scontroller", "k0scontroller"),
        (
            "/var/snap/microk8s/common/run/containerd.sock",
            [],
            "snap.microk8s.daemon-containerd",
            "snap.microk8s.daemon-kubelite",
        ),
        ("/srv/theirs.sock", [], "containerd", "kubelet"),
    ],
)
def test_by_where_its_socket_is(tmp_path: Path, path: str, there: "list[str]", service: str, kubelet: str) -> None:
    for unit in there:
        (tmp_path / unit).parent.mkdir(parents=True)
        (tmp_path / unit).touch()
    assert service_of(path, str(tmp_path)) == service
    assert kubelet_service(service) == kubelet


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        yield str(tmp_path / "sock")


@pytest.mark.parametrize(
    ("cgroup", "service"),
    [
        ("0::/system.slice/theirs.service\n", "theirs"),
        # Of version 1, and where it has groups below its own.
        ("2:cpu:/system.slice/theirs.service\n1:name=systemd:/system.slice/theirs.service/init\n", "theirs"),
        # systemd listens until somebody comes; a process of a session.
        ("0::/init.scope\n", "containerd"),
        ("0::/user.slice/session-1.scope\n", "containerd"),
        (None, "containerd"),
    ],
)
def test_by_who_listens(tmp_path: Path, listening: str, cgroup: "str | None", service: str) -> None:
    if cgroup is not None:
        process = tmp_path / "proc" / str(os.getpid())
        process.mkdir(parents=True)
        (process / "cgroup").write_text(cgroup)
    assert service_of(listening, str(tmp_path)) == service


def test_the_socket_of_a_node_whose_kubelet_names_none(tmp_path: Path) -> None:
    sockets = [str(tmp_path / path.lstrip("/")) for path in SOCKETS]
    assert likely_socket(sockets) == CONTAINERD
    # Beside a containerd of Docker's, the distribution's own counts.
    for path in reversed(sockets):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        assert likely_socket(sockets) == path
