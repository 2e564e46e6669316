"""`doctor` on the node and the roles look at the same container runtime."""

from __future__ import annotations

import itertools
import os

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.diagnostics import runtime_service
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import kubelet_process as of_plugin
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import kubelet_process


@pytest.mark.parametrize("there", list(itertools.combinations(kubelet_process.SOCKETS, 2)))
@pytest.mark.parametrize("trusted", [True, False])
def test_with_two_runtimes_and_a_kubelet_that_names_none(monkeypatch, there, trusted):
    for each in (kubelet_process, of_plugin):
        monkeypatch.setattr(each, "listener", lambda path: (object() if trusted and path == there[1] else None, None))
        monkeypatch.setattr(each, "named", lambda name: ([], []))
    monkeypatch.setattr(os.path, "exists", lambda path: path in there)
    assert runtime_service.cri_socket(None) == kubelet_process.likely_socket() == there[trusted]


@pytest.mark.parametrize("flags", [[], ["--container-runtime-endpoint=unix:/run/crio/crio.sock"], ["--config=/none"]])
def test_with_a_kubelet(monkeypatch, flags):
    class Kubelet:
        pid, unit, is_main = 7, None, True
        arguments = ["kubelet", *flags]

        def run(self, _option):
            return "Kubernetes v1.36.2", None

    monkeypatch.setattr(os.path, "exists", lambda path: path == "/run/k0s/containerd.sock")
    for each in (kubelet_process, of_plugin):
        monkeypatch.setattr(each, "named", lambda name: ([Kubelet()], []))
    kubelet, _refused = kubelet_process.running_kubelet()
    of_role = kubelet.cri_socket or kubelet_process.likely_socket()
    assert runtime_service.cri_socket(None) == runtime_service.cri_socket(None, kubelet) == of_role
    assert (
        of_role
        == ("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k0s/containerd.sock")[
            [[], ["--container-runtime-endpoint=unix:/run/crio/crio.sock"], ["--config=/none"]].index(flags)
        ]
    )
