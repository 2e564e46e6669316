"""What role verification lets the plugin's command do: a static pod only where the play has no kubeconfig."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import static_pod
from ansible_collections.nodedevices.kubernetes.plugins.action import verification

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/verification"
KUBELET = {
    "root_dir": "/var/lib/kubelet",
    "static_pod_path": "/etc/kubernetes/manifests",
    "kubeconfig": "/etc/kubernetes/kubelet.conf",
    "max_pods": 23,
}
STATIC_PODS = ["--static-pod-dir", "/etc/kubernetes/manifests"]
SLOTS = ["--kubelet-kubeconfig", "/etc/kubernetes/kubelet.conf", "--max-pods", "23"]


def command(kubelet, **arguments):
    node = {"runtime": {"socket": "/run/x.sock"}, "kubelet": kubelet}
    return verification._command({"tool": "plugin", "record": "/x.json", **arguments}, node)


@pytest.mark.parametrize(
    ("kubelet", "variables", "options"),
    [
        (KUBELET, {}, [*STATIC_PODS, *SLOTS]),
        (KUBELET, {"kubeconfig": ""}, [*STATIC_PODS, *SLOTS]),
        (KUBELET, {"kubeconfig": "~/.kube/config"}, [*STATIC_PODS, "--no-static-pods"]),
        ({**KUBELET, "kubeconfig": None}, {}, [*STATIC_PODS, *SLOTS[2:]]),
        ({**KUBELET, "max_pods": None}, {}, [*STATIC_PODS, *SLOTS[:2]]),
        ({**KUBELET, "static_pod_path": None}, {}, ["--static-pod-dir", "", *SLOTS]),
    ],
)
def test_a_static_pod_is_for_plays_without_a_kubeconfig(kubelet, variables, options):
    found = command(kubelet, **variables)
    assert found[:3] == ["plugin", "verify", "--config"]
    rest = found[found.index("--timeout") + 2 :]
    # An option without a value comes before the others.
    bare = [option for option in options if option == "--no-static-pods"]
    others = [each for each in options[2:] if each not in bare]
    assert rest == [*options[:2], *bare, "--kubelet-root", "/var/lib/kubelet", *others]


LEFTOVERS = """
- hosts: localhost
  gather_facts: false
  tasks:
    - nodedevices.kubernetes.node_preflight:
      register: looked
    - ansible.builtin.include_role:
        name: nodedevices.kubernetes.verification
        apply: {%s}
      vars:
        verification_state: cleaned
        of_node: {kubelet: {static_pod_path: %s, root_dir: /kubelet}, uid: 0}
        node_devices_node: "{{ looked | combine(of_node) }}"
"""
# What the plugin's command says of who holds what, until it was asked so often.
HOLDERS = """#!/bin/sh
echo "$*" >>"$0.called"
test "$(wc -l <"$0.called")" -ge %d || echo '{"held": [{"pod": "node-device-proof-0badcafe-node1"}]}'
"""


@pytest.mark.parametrize(
    ("option", "keyword", "held", "asked"),
    [
        (["--check"], "", 1, 0),
        # A play may ask for check mode of the role alone.
        ([], "check_mode: true", 1, 0),
        ([], "", 2, 2),
        ([], "", 9, 3),
    ],
)
def test_an_uninstall_removes_what_killed_proofs_left(tmp_path, option, keyword, held, asked):
    """It waits until they hold nothing, and not for ever."""
    tool = tmp_path / "tool"
    tool.write_text(HOLDERS % held)
    tool.chmod(0o755)
    pods = tmp_path / "manifests"
    (pods / "node-device-proof-directory").mkdir(parents=True)
    ours, others = ["node-device-proof-1.json", ".node-device-proof-2.json"], ["etcd.yaml", "my-node-device-proof-3"]
    for name in ours + others:
        (pods / name).touch()
    check = bool(option or keyword)
    (tmp_path / "play.yml").write_text(LEFTOVERS % (keyword, pods))
    program = pathlib.Path(sys.executable).with_name("ansible-playbook")
    variables = f"ansible_python_interpreter={sys.executable} node_tools_command={tool} verification_timeout=3"
    command = [program, "-i", "localhost,", "-c", "local", "-e", variables, *option]
    command.append(tmp_path / "play.yml")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROLE.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    names = sorted(path.name for path in pods.iterdir() if path.is_file())
    assert names == sorted(others + ours * check)
    assert "changed=1 " in done.stdout
    calls = tmp_path / "tool.called"
    says = "holders --kubelet-root /kubelet --output json"
    assert (calls.read_text().splitlines() if calls.exists() else []) == [says] * asked
    if not check:
        # By the name that the plugin's command goes by, too.
        assert static_pod.remove_leftovers(str(pods)) == []


def test_a_node_without_a_kubelet_gets_none():
    found = command(None)
    assert not {"--kubelet-root", "--max-pods"} & set(found)
    # The kubelet may be part of another process, and its directory is then unknown.
    assert found[found.index("--static-pod-dir") + 1] == ""
