"""The scans of all hosts: one declaration for equal nodes."""

from __future__ import annotations

import yaml
from ansible_collections.nodedevices.kubernetes.plugins.filter.scan_groups import FilterModule

SERIAL = {"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}
KVM = {"name": "devices.example.com/kvm", "devices": [{"id": "kvm", "nodes": [{"path": "/dev/kvm"}]}]}


def resource(kind, declaration, *whats, about=""):
    devices = [{"id": str(number), "what": what, "nodes": []} for number, what in enumerate(whats)]
    return {"class": kind, "about": about, "declaration": declaration, "devices": devices}


def scanned(*resources, unsuggested=(), problems=()):
    found = {"resources": list(resources), "unsuggested": list(unsuggested), "problems": list(problems)}
    return {"node_devices_scan": {"changed": False, "scan": found}}


def test_equal_nodes_have_one_declaration():
    kvm = resource("KVM", KVM, "", about="Shared.")
    disk = {"class": "USB device", "what": "Cruzer", "nodes": ["/dev/sda"], "address": "", "reason": "is a disk"}
    hostvars = {
        "w1": scanned(resource("serial port", SERIAL, "FTDI", "FTDI"), kvm, unsuggested=[disk]),
        "w2": scanned(kvm),
        "w3": scanned(resource("serial port", SERIAL, "FTDI"), kvm, problems=["TPMs: did not answer in 5 s"]),
        "w4": scanned(),
        "w5": {"node_devices_scan": {"failed": True, "msg": "Task failed: no\nPython"}},
        "w6": {"node_devices_scan": {"skipped": True}},
        "w7": {},
        "not asked for": scanned(kvm),
    }
    text = FilterModule().filters()["scan_groups"]([f"w{number}" for number in range(1, 8)], hostvars)
    first, second, empty, failed = text.split("\n\n\n")
    assert first.splitlines() == [
        "# w1, w3",
        "# Keep what pods need, and replace the domain devices.example.com with yours.",
        "node_devices_resources:",
        "  # w1: 2 x serial port: FTDI",
        "  # w3: 1 x serial port: FTDI",
        "  - name: devices.example.com/serial",
        "    discover:",
        "      paths: [/dev/serial/by-id/*]",
        "",
        "  # 1 x KVM",
        "  # Shared.",
        "  - name: devices.example.com/kvm",
        "    devices:",
        "      - {id: kvm, nodes: [{path: /dev/kvm}]}",
        "",
        "# w1: Cruzer /dev/sda: is a disk",
        "# w3: Not complete: TPMs: did not answer in 5 s",
    ]
    assert yaml.safe_load(first) == {"node_devices_resources": [SERIAL, KVM]}
    assert second.splitlines()[0] == "# w2"
    assert yaml.safe_load(second) == {"node_devices_resources": [KVM]}
    assert empty == "# w4\nnode_devices_resources: []"
    assert failed.splitlines() == [
        "# w5: not scanned: no Python",
        "# w6: not scanned: Ansible does not connect to this host, because only the Kubernetes API reaches it",
        "# w7: not scanned: the play ended for this host before",
    ]


def test_one_wrong_answer_hides_no_other_node():
    answers = [None, [], {"resources": [{"declaration": {}}]}, {"resources": [KVM], "unsuggested": [], "problems": []}]
    hostvars = {f"w{number}": {"node_devices_scan": {"scan": answer}} for number, answer in enumerate(answers)}
    hostvars["well"] = scanned(resource("KVM", KVM, ""))
    hostvars["escape"] = {"node_devices_scan": {"failed": True, "msg": "\x1b[2J"}}
    well, failed = FilterModule().filters()["scan_groups"](list(hostvars), hostvars).split("\n\n\n")
    assert yaml.safe_load(well) == {"node_devices_resources": [KVM]}
    why = "the command scan printed something else"
    wrong = [f"# w{number}: not scanned: {why}" for number in range(len(answers))]
    assert failed.splitlines() == [*wrong, "# escape: not scanned: \\x1b[2J"]
