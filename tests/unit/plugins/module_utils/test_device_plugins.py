"""Which device plugins serve on a node, and what that means for ours."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import device_plugins
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.device_plugins import device_plugin_facts
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import Asked
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.requirements import problems, same_driver, taken

from node_device_plugin.kubelet import plugin_watcher

SERIAL, KVM = "devices.example.com/serial", "devices.example.com/kvm"


@pytest.fixture
def directory():
    # pytest's own folders have names too long for sockets.
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


@contextlib.contextmanager
def listening(path, answer=None):
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            while True:
                try:
                    connection, _address = server.accept()
                except OSError:
                    return
                with connection:
                    if answer is not None:
                        connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(answer).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def proc(directory, cgroup, own_processes):
    """A /proc of this process, and of process 1."""
    for pid, number in (("1", "1"), (str(os.getpid()), "2" if own_processes else "1")):
        (directory / pid / "ns").mkdir(parents=True)
        (directory / pid / "ns" / "pid").symlink_to(f"pid:[{number}]")
        (directory / pid / "cgroup").write_text(cgroup)
    return str(directory)


def test_nothing_is_there(directory):
    nothing = {"instance": None, "registered": [], "others": [], "drivers": []}
    assert device_plugin_facts(str(directory), "/none") == nothing
    assert device_plugin_facts(str(directory / "none"), "/none") == nothing


@pytest.mark.parametrize(
    ("cgroup", "own_processes", "mode"),
    [
        ("0::/system.slice/node-device-plugin.service\n", False, "service"),
        ("0::/kubepods/besteffort/pod1/2\n", True, "pod"),
        ("0::/user.slice\n", False, "process"),
    ],
)
def test_our_own_instance(directory, tmp_path, cgroup, own_processes, mode):
    answer = {"resources": [{"name": SERIAL}]}
    with listening(directory / "node-device-plugin" / "status.sock", answer):
        facts = device_plugin_facts(str(directory), "/none", proc(tmp_path, cgroup, own_processes))
    assert facts == {"instance": {"mode": mode, "resources": [SERIAL]}, "registered": [], "others": [], "drivers": []}
    # It is not there any more, its socket is.
    assert device_plugin_facts(str(directory), "/none")["instance"] is None


def test_others(directory):
    (directory / "kubelet_internal_checkpoint").write_text(
        json.dumps({"Data": {"RegisteredDevices": {SERIAL: ["a"], KVM: []}}})
    )
    (directory / "file.sock").write_text("")
    with listening(directory / "kubelet.sock"), listening(directory / "a.sock"), listening(directory / "sub" / "b"):
        facts = device_plugin_facts(str(directory), "/none")
    assert facts["registered"] == [SERIAL]
    assert facts["others"] == [str(directory / "a.sock"), str(directory / "sub" / "b")]
    assert device_plugin_facts(str(directory), "/none")["others"] == []


def test_drivers(directory):
    """By their sockets for the kubelet; what only remains of a driver, and drivers of storage, are none."""
    uid = "-0b1f5ba7-6a3e-4d7e-8d1a-3c5f6a7b8c9d"
    names = [f"gpu.nvidia.com{uid}", "gpu.intel.com", "pmem-csi.intel.com", "csi.vendor.example"]
    (directory / "gone.nvidia.com-reg.sock").write_text("")
    with contextlib.ExitStack() as stack:
        for name in (*(f"{name}-reg.sock" for name in names), "node-device-plugin-x.sock"):
            stack.enter_context(listening(directory / name))
        assert device_plugin_facts("/none", str(directory))["drivers"] == ["gpu.intel.com", "gpu.nvidia.com"]


@pytest.mark.parametrize(
    ("stem", "drivers"),
    [
        # A long name with the hash of the pod's uid, as package kubeletplugin of Kubernetes 1.37 makes it.
        ("accelerator.of.a.vendor.example.com-q3-_Zk0vXwE", ["accelerator.of.a.vendor.example.com"]),
        # The name itself may have a part of eleven characters.
        ("gpu.example.com-accelerator", ["gpu.example.com-accelerator"]),
        # The shortest form is a hash of the driver's name and the uid.
        ("dra-R2tq0Zk3vXwEyB7hLmN_1A", []),
    ],
)
def test_drivers_whose_socket_has_a_hash(directory, stem, drivers):
    with listening(directory / f"{stem}-reg.sock"):
        assert device_plugin_facts("/none", str(directory))["drivers"] == drivers


@pytest.mark.parametrize("instance", ["", "0a1b2c"])
@pytest.mark.parametrize("name", ["nodedevices.kubernetes", "x-reg", "example.com/a-reg"])
def test_the_plugin_s_own_sockets_are_no_other_driver_s(directory, name, instance):
    with listening(pathlib.Path(plugin_watcher.socket_path(str(directory), name, instance))):
        assert device_plugin_facts("/none", str(directory / plugin_watcher.DIRECTORY))["drivers"] == []


@pytest.mark.parametrize(
    ("kinds", "drivers", "count"),
    [
        (["nvidia.com/gpu"], ["gpu.nvidia.com"], 1),
        (["nvidia.com/gpu"], ["nvidia.com"], 1),
        (["nvidia.com/gpu"], ["gpu.notnvidia.com"], 0),
        (["nvidia.com/gpu"], ["gpu.intel.com"], 0),
        ([], ["gpu.nvidia.com"], 0),
    ],
)
def test_a_dra_driver_of_the_vendor_would_give_its_devices_twice(kinds, drivers, count):
    messages = list(taken(plugins(drivers=drivers), [SERIAL], "service", kinds))
    assert len(messages) == count
    for message in messages:
        assert message.startswith(f"a DRA driver serves {drivers[0]} on this node, and the declaration offers devices")


def plugins(mode=None, ours=(), registered=(), others=(), drivers=()):
    instance = {"mode": mode, "resources": list(ours)} if mode else None
    return {"instance": instance, "registered": list(registered), "others": list(others), "drivers": list(drivers)}


@pytest.mark.parametrize(
    ("there", "mode"),
    [
        (plugins(), "service"),
        (plugins("service", [SERIAL], [SERIAL], ["/x.sock"]), "service"),
        (plugins("pod", [SERIAL], [SERIAL], ["/x.sock"]), "daemonset"),
        # What the kubelet remembers of a plugin that is gone.
        (plugins(registered=[SERIAL]), "service"),
        # Another plugin, with other resources.
        (plugins(registered=["nvidia.com/gpu"], others=["/nvidia.sock"]), "service"),
    ],
)
def test_nothing_stands_in_the_way(there, mode):
    assert list(taken(there, [SERIAL, KVM], mode)) == []


def test_ours_in_the_other_mode():
    (sentence,) = taken(plugins("service", [SERIAL], [SERIAL]), [SERIAL], "daemonset")
    assert sentence.startswith(
        "the plugin runs on this node as a systemd service, but device_plugin_mode is daemonset: set "
    )
    (sentence,) = taken(plugins("pod", [SERIAL], [SERIAL]), [SERIAL], "service")
    assert sentence.startswith(
        "the plugin runs on this node as a DaemonSet's pod, but device_plugin_mode is service: set "
    )


def test_ours_in_the_other_mode_beside_the_plugin_of_a_vendor():
    there = plugins("service", [SERIAL], [SERIAL, "nvidia.com/gpu"], ["/nvidia.sock"])
    mode, vendor = taken(there, [SERIAL], "daemonset", ["nvidia.com/gpu"])
    assert mode.startswith("the plugin runs on this node as a systemd service, but device_plugin_mode is daemonset")
    assert vendor.startswith("another device plugin serves nvidia.com/gpu on this node, and the declaration offers")


def test_another_driver_has_the_name():
    (sentence,) = same_driver(["gpu.intel.com", "gpu.nvidia.com"], "gpu.nvidia.com")
    assert sentence.startswith("another DRA driver named gpu.nvidia.com runs on this node, and each of the two would")
    assert list(same_driver(["gpu.intel.com", "gpu.nvidia.com"], "nvidia.com")) == []


@pytest.mark.parametrize("takeover", [False, True])
def test_a_takeover_takes_no_driver_s_name(takeover):
    """It takes the resources of another device plugin."""
    driver = {"name": "gpu.nvidia.com", "kubeconfig": "/k"}
    declared = {"resources": [{"name": SERIAL}], "foreign_kinds": [], "dra": driver}
    asked = Asked(declared, [], None, "service", takeover, None, "n", {}, None, True, False, {})
    facts = {"uid": 1000, "device_plugins": plugins("pod", [SERIAL], [SERIAL], drivers=["gpu.nvidia.com"])}
    present = {"uid": 0, "ledger_problem": None, "kubelet_problem": None}
    found = problems(asked, facts, present, runs_units=True)
    assert [each.split(" runs on this node")[0] for each in found] == [
        "another DRA driver named gpu.nvidia.com",
        *([] if takeover else ["the plugin"]),
    ]


def test_another_plugin_has_the_name():
    there = plugins("service", [SERIAL], [SERIAL, KVM], ["/dp/kvm.sock"])
    assert list(taken(there, [SERIAL, KVM], "service")) == [
        "another device plugin already serves devices.example.com/kvm on this node (sockets of other plugins: "
        "/dp/kvm.sock): remove that plugin first, or set device_plugin_takeover: true and remove it right after the "
        "run"
    ]


@pytest.mark.parametrize(
    ("registered", "ours", "others"),
    [
        (["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"], [], "nvidia.com/gpu, nvidia.com/mig-1g.5gb"),
        (["gpu.nvidia.com/x"], [], "gpu.nvidia.com/x"),
        (["nvidia.com/gpu"], ["nvidia.com/gpu"], ""),
        # Declared here: the resource itself is judged, with its fix.
        ([KVM, "notnvidia.com/gpu", "example.com/nvidia.com"], [], ""),
    ],
)
def test_devices_of_a_kind_are_refused_where_another_plugin_serves_the_vendors_resources(registered, ours, others):
    there = plugins("service", ours, [*registered, *ours], ["/dp/other.sock"])
    found = list(taken(there, ["example.com/accelerator"], "service", ["nvidia.com/gpu"]))
    if others:
        (sentence,) = found
        assert sentence.startswith(
            f"another device plugin serves {others} on this node, and the declaration offers devices of the CDI kind "
            "nvidia.com/gpu"
        )
    else:
        assert found == []
    assert list(taken(there, ["example.com/accelerator"], "service")) == []
    # What the kubelet remembers of a plugin that is gone.
    there = plugins("service", ours, [*registered, *ours])
    assert list(taken(there, ["example.com/accelerator"], "service", ["nvidia.com/gpu"])) == []


def hostile(path, make):
    if make == "fifo":
        os.mkfifo(path)
    elif make == "endless":
        path.symlink_to("/dev/zero")
    elif make == "deep":
        path.write_text('{"Data": ' + "[" * 100_000)
    elif make == "types":
        path.write_text('{"Data": {"RegisteredDevices": [1]}}')


@pytest.mark.parametrize("make", ["fifo", "endless", "deep", "types"])
def test_a_checkpoint_of_a_pod_costs_no_time(directory, make):
    hostile(directory / "kubelet_internal_checkpoint", make)
    assert device_plugin_facts(str(directory), "/none")["registered"] == []


@pytest.mark.parametrize(
    "answer", [{"resources": [{"name": 7}]}, {"resources": {"name": "x"}}, [], {"resources": [{"name": {}}]}]
)
def test_an_instance_that_answers_other_types_is_none(directory, answer):
    with listening(directory / "node-device-plugin" / "status.sock", answer):
        assert device_plugin_facts(str(directory), "/none")["instance"] is None


@pytest.mark.parametrize(("chunk", "pause"), [(b"x" * (1 << 20), 0), (b"x", 0.01)])
def test_an_instance_whose_answer_does_not_end_is_none(directory, monkeypatch, chunk, pause):
    monkeypatch.setattr(device_plugins, "_TIMEOUT", 0.3)
    path, ended = directory / "node-device-plugin" / "status.sock", threading.Event()
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            connection, _address = server.accept()
            with connection, contextlib.suppress(OSError):
                while not ended.wait(pause):
                    connection.sendall(chunk)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            assert device_plugin_facts(str(directory), "/none")["instance"] is None
        finally:
            ended.set()
            thread.join()


def test_a_directory_that_a_pod_fills_is_read_in_part(directory, monkeypatch):
    """Also one that is deeper than Python's stack."""
    monkeypatch.setattr(device_plugins, "_MOST_ENTRIES", 1500)
    at = os.getcwd()
    os.chdir(directory)
    try:
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(at)
    registry = directory / "registry"
    registry.mkdir()
    for number in range(1600):
        (registry / str(number)).touch()
    facts = device_plugin_facts(str(directory), str(registry))
    # Python's own removal of directories recurses.
    subprocess.run(["rm", "-r", directory / "d"], check=True)
    assert (facts["others"], facts["drivers"]) == ([], [])
