"""What is read of the kubelet's configuration."""

from __future__ import annotations

import os

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import kubelet_process


class Kubelet:
    """A process that is the node's kubelet."""

    pid, unit = 7, "kubelet.service"

    def __init__(self, *arguments):
        self.arguments = ["/usr/bin/kubelet", *arguments]

    def run(self, _option):
        return "Kubernetes v1.36.2", 0


def facts(tmp_path, text, *arguments):
    path = tmp_path / "config"
    path.write_text(text)
    return kubelet_process.kubelet_of(Kubelet(f"--config={path}", *arguments))._asdict()


@pytest.mark.parametrize(
    ("text", "arguments", "number"),
    [
        ("kind: KubeletConfiguration\n", [], 110),
        ("maxPods: 23 # few\n", [], 23),
        ('{"maxPods": 23}', [], 23),
        ("maxPods: 23\n", ["--max-pods=7"], 7),
        ("podsPerCore: 1\n", [], min(110, os.cpu_count())),
        ("podsPerCore: 0\n", [], 110),
        ("maxPods: 1\npodsPerCore: 100\n", [], 1),
        ("maxPods: many\n", [], None),
    ],
)
def test_how_many_pods_it_takes(tmp_path, text, arguments, number):
    assert facts(tmp_path, text, *arguments)["max_pods"] == number


@pytest.mark.parametrize(
    ("text", "arguments", "is_off"),
    [
        ("featureGates:\n  DynamicResourceAllocation: false\n", [], True),
        ('{"featureGates": {"DynamicResourceAllocation":false}}', [], True),
        ("", ["--feature-gates=A=true,DynamicResourceAllocation=false"], True),
        ("featureGates:\n  DynamicResourceAllocation: true\n", [], False),
        ("featureGates:\n  DRADynamicResourceAllocation: false\n", [], False),
        ("", [], False),
    ],
)
def test_whether_the_gate_of_dra_is_off(tmp_path, text, arguments, is_off):
    assert facts(tmp_path, text, *arguments)["dra_is_off"] is is_off


def test_what_cannot_be_read_is_not_known():
    assert kubelet_process.kubelet_of(Kubelet("--config=/none")).max_pods is None
    assert kubelet_process.kubelet_of(Kubelet()).max_pods == 110


def test_its_own_credentials(tmp_path):
    assert (
        facts(tmp_path, "", "--kubeconfig=/etc/kubernetes/kubelet.conf")["kubeconfig"] == "/etc/kubernetes/kubelet.conf"
    )
    assert facts(tmp_path, "")["kubeconfig"] is None
