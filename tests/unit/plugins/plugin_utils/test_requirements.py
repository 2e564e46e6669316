"""One clear sentence for each thing that a node lacks, all at once."""

from __future__ import annotations

import copy
import pathlib

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import TESTED_KUBELETS
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.requirements import (
    unanswered,
    unmet,
    untested,
    without_dra,
)

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
ALL = ["python", "systemd", "runtime", "kubelet", "devices"]
GOOD = {
    "python": {"version": [3, 9, 2], "executable": "/usr/bin/python3"},
    "uid": 0,
    "init": "systemd",
    "runtime": {
        "socket": "/run/containerd/containerd.sock",
        "name": "containerd",
        "version": "1.7.2",
        "obstacles": [],
    },
    "kubelet": {"pid": 7, "version": "1.29.0"},
    "missing_devices": [],
    "missing_host_paths": [],
    "other_than_devices": {},
    "device_links": {},
    "device_plugins": {"registered": []},
    "claims_prepared": [],
}
PATHS = {
    "/dev/a": {"device": "example.com/serial a", "required": True, "exclusive": True},
    "/dev/b": {"device": "example.com/serial b", "required": False, "exclusive": True},
}


def node(**changes):
    changed = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *directories, key = path.split("__")
        place = changed
        for directory in directories:
            place = place[directory]
        place[key] = value
    return changed


@pytest.mark.parametrize("kubelet", [GOOD["kubelet"], None])
def test_nothing_stands_in_the_way(kubelet):
    assert unmet(ALL, node(kubelet=kubelet), PATHS) == []


@pytest.mark.parametrize(("version", "warned"), [("1.29.0", 1), ("1.30.14", 1), ("1.31.0", 0), ("1.38.0", 0)])
def test_a_kubelet_that_nobody_tested(version, warned):
    known = node(kubelet__version=version)
    assert unmet(ALL, known, PATHS) == []
    why = f"kubelet {version}: this project is not tested with kubelets older than 1.31; see docs/compatibility.md"
    assert untested(ALL, known) == [why] * warned
    # No CDI name is passed or the kubelet is not checked: no warning.
    assert untested(["python"], known) == untested(ALL, node(kubelet=None)) == []


def test_the_tested_kubelets_are_the_pinned_ones():
    pinned = {path.parent.name for path in (CHECKOUT / "lab/programs").glob("kubernetes-*/go.sum")}
    assert pinned == {f"kubernetes-{major}.{minor}" for major, minor in TESTED_KUBELETS}
    assert list(TESTED_KUBELETS) == sorted(TESTED_KUBELETS)
    for major, minor in TESTED_KUBELETS:
        assert untested(ALL, node(kubelet__version=f"{major}.{minor}.0")) == []


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        (
            {"uid": 1000, "init": "sh"},
            "tasks run as user id 1000, but the collection needs root: set ansible_become: true",
        ),
        ({"init": "sh"}, "the first process is sh, not systemd"),
        ({"runtime__obstacles": ["this runtime drops CDI names: upgrade it"]}, "this runtime drops CDI names: upgrade"),
        ({"kubelet__version": "1.28.15"}, "kubelet 1.28.15 silently drops CDI device names"),
        ({"kubelet__version": None}, "the kubelet (process 7) prints no version"),
        ({"missing_devices": ["/dev/a", "/dev/b"]}, "/dev/a does not exist, but device example.com/serial a needs it"),
        (
            {"other_than_devices": {"/dev/a": "a directory", "/dev/b": "a file"}},
            "/dev/a is a directory, not a device node, as device example.com/serial a needs: declare",
        ),
        (
            {"device_links": {"/dev/a": "/dev/sda", "/dev/b": "/dev/sda"}},
            "/dev/b of device example.com/serial b and /dev/a of device example.com/serial a both lead to /dev/sda",
        ),
        ({"device_links": {"/dev/b": "/dev/a"}}, "/dev/b of device example.com/serial b and /dev/a of device"),
        ({"ledger_problem": "ledger.json is damaged"}, "ledger.json is damaged"),
    ],
)
def test_one_sentence(changes, beginning):
    sentences = unmet(ALL, node(**changes), PATHS)
    assert len(sentences) == 1
    assert sentences[0].startswith(beginning)


def test_shares_and_links_of_one_device_may_lead_to_one_node():
    links = node(device_links={"/dev/a": "/dev/sda", "/dev/b": "/dev/sda"})
    shared = {**PATHS, "/dev/b": {**PATHS["/dev/b"], "exclusive": False}}
    one = {path: {**PATHS[path], "device": "example.com/serial a"} for path in PATHS}
    assert unmet(ALL, links, shared) == unmet(ALL, links, one) == []
    apart = node(device_links={"/dev/a": "/dev/sda", "/dev/b": "/dev/sdb"})
    assert unmet(ALL, apart, PATHS) == []


def test_without_cdi_old_versions_will_do_and_all_else_is_asked_for_as_ever():
    old = node(kubelet__version="1.24.0")
    assert len(unmet(ALL, old, PATHS)) == 1
    assert unmet(ALL, old, PATHS, cdi=False) == []
    assert len(unmet(ALL, {**old, "missing_devices": ["/dev/a"]}, PATHS, cdi=False)) == 1


def test_all_at_once_and_only_what_is_asked_for():
    bad = node(init="sh", kubelet__version="1.28.0", missing_devices=["/dev/a"])
    assert len(unmet(ALL, bad, PATHS)) == 3
    assert len(unmet(["kubelet"], bad, PATHS)) == 1


@pytest.mark.parametrize(
    ("facts", "interpreter", "sentence"),
    [
        (
            {"module_stderr": "/bin/sh: 1: /usr/bin/python3: not found"},
            "/usr/bin/python3",
            "Python was not found at /usr",
        ),
        ({"msg": "No python interpreters found for host"}, "auto_silent", "Python was not found on the node"),
        (
            {"msg": "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.9"},
            None,
            "the Python on the node is too old",
        ),
        (
            {"module_stderr": "TypeError: 'type' object is not subscriptable"},
            "/usr/bin/python3.8",
            "the Python at /usr/bin/python3.8 is too old: install Python 3.9 or later",
        ),
        (
            {"module_stderr": "boom"},
            None,
            "the preflight module failed on the node (-vvv shows its whole output): boom",
        ),
    ],
)
def test_a_node_without_a_usable_python(facts, interpreter, sentence):
    assert unanswered(facts, interpreter).startswith(sentence)


def source(who="device example.com/cam a", required=True, all_of=()):
    return {"field": "the field", "who": who, "required": required, "all_of": list(all_of)}


NOPE = "/etc/nope"


def test_a_missing_source_of_a_mount_is_named_with_its_device_and_field():
    bad = node(missing_host_paths=[NOPE])
    says = (
        "/etc/nope does not exist, but device example.com/cam a needs it (the field), so no container with the device "
        "would start: create the path on the node, or change the declaration, or set required: false to leave the "
        "device out until the path exists"
    )
    assert unmet(ALL, bad, {}, host_paths={NOPE: source(), "/etc/fine": source()}) == [says]
    assert unmet(ALL, bad, {}, host_paths={NOPE: source(required=False)}) == []
    assert unmet(["python"], bad, {}, host_paths={NOPE: source()}) == []


def test_no_working_resource_loses_all_its_devices():
    optional = {NOPE: source("a device of example.com/cam", required=False, all_of=["example.com/cam"])}
    bad = node(missing_host_paths=[NOPE], device_plugins__registered=["example.com/cam", "example.com/other"])
    (sentence,) = unmet(ALL, bad, {}, host_paths=optional)
    assert sentence.endswith(
        ": this would take all devices of example.com/cam away: create the path on the node, or change the declaration"
    )
    assert unmet(ALL, node(missing_host_paths=[NOPE]), {}, host_paths=optional) == []
    bad["device_plugins"]["registered"] = ["example.com/other"]
    assert unmet(ALL, bad, {}, host_paths=optional) == []


CDI_DIR = "/var/run/cdi"


def claim(driver="d.example.com", directory="/run/cdi"):
    return {"name": "default/viewer", "driver": driver, "directory": directory}


DRIVER = {"name": "d.example.com", "node": "worker1", "kubeconfig": "/etc/kubernetes/kubelet.conf"}


@pytest.mark.parametrize(
    ("kubelet", "problem", "says"),
    [
        ({"version": "1.34.9", "kubeconfig": DRIVER["kubeconfig"]}, None, []),
        (None, None, []),
        (
            {"version": "1.33.1"},
            None,
            ["kubelet 1.33.1 has no DRA API v1, which api: dra needs: upgrade it to 1.34 or later"],
        ),
        (
            {"version": "1.37.2", "kubeconfig": "/k3s/kubelet.kubeconfig"},
            "No such file",
            [
                "resources with api: dra cannot use /etc/kubernetes/kubelet.conf: No such file; the running kubelet "
                "uses /k3s/kubelet.kubeconfig: set dra.kubeconfig in node_devices_settings to it"
            ],
        ),
        (
            {"version": "1.37.2", "kubeconfig": DRIVER["kubeconfig"]},
            "no rights",
            ["resources with api: dra cannot use /etc/kubernetes/kubelet.conf: no rights"],
        ),
    ],
)
def test_a_node_that_cannot_have_a_dra_driver(kubelet, problem, says):
    facts = node(kubelet=kubelet, dra={"problem": problem, "paths": []})
    assert list(without_dra(DRIVER, facts, CDI_DIR)) == says
    assert list(without_dra({}, facts, CDI_DIR)) == []


def test_a_node_keeps_its_dra_driver_while_claims_need_it():
    prepared = node(kubelet=None, claims_prepared=[claim()])
    (says,) = without_dra({}, prepared, CDI_DIR)
    assert says.startswith("pods have devices of this node by ResourceClaims, but no resource has api: dra any more")
    assert list(without_dra(DRIVER, prepared, CDI_DIR)) == []


def test_a_driver_stays_what_its_claims_know():
    claims = [claim(), claim(driver="old.example.com"), claim(driver=None), claim(directory="/srv/cdi")]
    assert list(without_dra(DRIVER, node(kubelet=None, claims_prepared=claims), CDI_DIR)) == [
        "dra.driver in node_devices_settings: is d.example.com, but pods have devices by ResourceClaims that only the "
        "driver old.example.com can release: end these pods first (kubectl drain), or set dra.driver to "
        "old.example.com",
        "dynamic_cdi_dir in node_devices_settings: is /var/run/cdi, but pods have devices by ResourceClaims whose "
        "records are in /srv/cdi: end these pods first (kubectl drain), or set dynamic_cdi_dir to /srv/cdi",
    ]
