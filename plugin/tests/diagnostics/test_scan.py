"""The command ``scan``: what it suggests for a made machine, and that each suggestion finds just these devices."""

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_device_plugin.cli.main import main
from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.discovery.root import Root
from node_device_plugin.diagnostics import scan, suggestions
from node_device_plugin.support.bounded_calls import BoundedCalls

from ..devices.discovery.conftest import LinksInside, Machine

SPEC_DIRS = ["/etc/cdi", "/var/run/cdi"]
BUS = "pci0000:00"
USB = BUS + "/0000:00:14.0/usb1"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pci(machine: Machine, address: str, class_code: str, model: str, driver: str = "", group: str = "") -> str:
    directory = f"{BUS}/{address}"
    vendor, device = model.split(":")
    machine.on_bus("pci", directory, vendor="0x" + vendor, device="0x" + device, **{"class": "0x" + class_code})
    if driver:
        machine.link(f"/sys/devices/{directory}/driver", f"../../../bus/pci/drivers/{driver}")
    if group:
        machine.link(f"/sys/devices/{directory}/iommu_group", f"../../../kernel/iommu_groups/{group}")
    return directory


def usb(machine: Machine, port: str, model: str, maker: str = "", product: str = "", kind: str = "00") -> str:
    directory = f"{USB}/{port}"
    vendor, number = model.split(":")
    texts = {"manufacturer": maker, "product": product, "bDeviceClass": kind}
    devname = f"bus/usb/001/{int(port[2:]):03d}"
    machine.on_bus("usb", directory, idVendor=vendor, idProduct=number, devname=devname, **texts)
    return directory


def node(machine: Machine, directory: str, devname: str, **texts: str) -> None:
    """A device with a node and its link in /sys/class. directory: ends with the class and the name."""
    machine.node_of(directory, devname)
    kind, name = directory.split("/")[-2:]
    machine.link(f"/sys/class/{kind}/{name}", f"../../devices/{directory}")
    for key, text in texts.items():
        machine.file(f"/sys/devices/{directory}/{key}", text + "\n")


def adapter(machine: Machine, port: str, number: int, model: str = "0403:6001", by_id: str = "") -> None:
    directory = usb(machine, port, model, "FTDI", "FT232R USB UART")
    node(machine, f"{directory}/{port}:1.0/tty/ttyUSB{number}", f"ttyUSB{number}")
    if by_id:
        machine.link(f"/dev/serial/by-id/{by_id}", f"../../ttyUSB{number}")


def camera(machine: Machine, port: str, number: int) -> None:
    directory = usb(machine, port, "046d:0825", "Logitech", "Webcam C270")
    for index in (0, 1):
        name = f"video{number + index}"
        node(machine, f"{directory}/{port}:1.0/video4linux/{name}", name, name="Webcam C270", index=str(index))


def spec(machine: Machine, kind: str, devices: Mapping[str, Sequence[str]]) -> None:
    edits = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
        for name, paths in devices.items()
    ]
    path = "/etc/cdi/{}.json".format(kind.replace("/", "-"))
    machine.file(path, json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": edits}))


def whole(machine: Machine) -> None:
    """A machine that has something of every class."""
    for name in ("kvm", "fuse", "net/tun", "tpmrm0", "watchdog", "ttyS0", "ttyS1", "ttyS2", "vfio/vfio", "vfio/7"):
        machine.file("/dev/" + name)
    node(machine, "virtual/watchdog/watchdog0", "watchdog0", identity="iTCO_wdt")
    for number, kind in enumerate("440"):
        machine.file(f"/sys/class/tty/ttyS{number}/type", kind)
    machine.file("/sys/class/tty/console/active", "tty0 ttyS0\n")
    usb(machine, "1-1", "1d6b:0002", "Linux", "hub", "09")
    adapter(machine, "1-2", 0, by_id="usb-FTDI_A-if00-port0")
    adapter(machine, "1-3", 1)
    camera(machine, "1-4", 0)
    usb(machine, "1-5", "1209:0001", "Dongles", "Licence key")
    disk = usb(machine, "1-6", "0781:5567", "SanDisk", "Cruzer")
    node(machine, disk + "/1-6:1.0/block/sda", "sda")
    card = pci(machine, "0000:00:1f.3", "040300", "8086:a170", "snd_hda_intel")
    for name in ("controlC0", "pcmC0D0p", "pcmC0D0c"):
        node(machine, f"{card}/sound/card0/{name}", "snd/" + name)
        machine.link(f"/sys/class/sound/{name}", f"../../devices/{card}/sound/card0/{name}")
    machine.file(f"/sys/devices/{card}/sound/card0/id", "PCH")
    machine.file(f"/sys/devices/{card}/sound/card0/number", "0")
    machine.file("/dev/snd/timer")
    gpu = pci(machine, "0000:00:02.0", "030000", "8086:5912", "i915")
    node(machine, gpu + "/drm/renderD128", "dri/renderD128")
    machine.link(f"/sys/devices/{gpu}/drm/renderD128/device", "../..")
    pci(machine, "0000:00:03.0", "030000", "1a03:2000", "ast")
    pci(machine, "0000:01:00.0", "030000", "10de:2204", "nvidia")
    machine.file("/dev/nvidia0")
    machine.file("/dev/nvidiactl")
    fpga = pci(machine, "0000:02:00.0", "120000", "10ee:5000", "xclmgmt")
    node(machine, fpga + "/xclmgmt/xclmgmt0", "xclmgmt0")
    pci(machine, "0000:03:00.0", "010802", "144d:a808", "vfio-pci", "7")
    pci(machine, "0000:03:00.1", "010802", "144d:a809", "vfio-pci", "7")
    network = pci(machine, "0000:04:00.0", "020000", "15b3:1017", "mlx5_core")
    pci(machine, "0000:04:00.1", "020000", "15b3:1018", "mlx5_core")
    machine.link(f"/sys/devices/{BUS}/0000:04:00.1/physfn", "../0000:04:00.0")
    node(machine, network + "/infiniband_verbs/uverbs0", "infiniband/uverbs0", ibdev="mlx5_0")
    machine.file("/dev/infiniband/rdma_cm")
    machine.file("/dev/acme0")
    spec(machine, "acme.com/npu", {"0": ["/dev/acme0"]})
    spec(machine, "k8s.device-plugin.nvidia.com/gpu", {"0": ["/dev/acme1"]})


def scanned(machine: Machine, **more: Any) -> dict[str, Any]:
    root = str(machine.path)
    return asyncio.run(scan.scan(links=LinksInside(root), root=root, spec_dirs=SPEC_DIRS, **more))


def found(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """The ids that each suggested resource finds, by its name without the domain."""
    return {
        each["declaration"]["name"].partition("/")[2]: [device["id"] for device in each["devices"]]
        for each in data["resources"]
    }


def declaration(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    (one,) = (each["declaration"] for each in data["resources"] if each["declaration"]["name"].endswith("/" + name))
    return dict(one)


def test_a_machine_with_something_of_every_class(machine: Machine) -> None:
    whole(machine)
    data = scanned(machine)
    assert found(data) == {
        "acme-npu": ["acme.com-npu-0"],
        "gpu": ["dri-renderD128"],
        # The second function of the group would be given away with the first.
        "vfio-144d-a808": ["vfio-0000:03:00.0"],
        "accelerator-10ee-5000": ["pci-0000:02:00.0"],
        "vf-15b3-1018": ["pci-0000:04:00.1"],
        "rdma": ["infiniband-uverbs0"],
        "serial": ["serial-by-id-usb-FTDI_A-if00-port0", "ttyUSB1"],
        "uart": ["ttyS1"],
        "camera": ["video0"],
        "sound": ["snd-controlC0"],
        "tpm": ["tpmrm0"],
        "watchdog": ["watchdog0"],
        "kvm": ["kvm"],
        "fuse": ["fuse"],
        "tun": ["tun"],
        "usb-1209-0001": ["usb-1209-0001-1-5"],
    }
    whats = {device["id"]: device["what"] for each in data["resources"] for device in each["devices"]}
    assert {
        name: whats[name] for name in ("acme.com-npu-0", "dri-renderD128", "ttyUSB1", "video0", "snd-controlC0")
    } == {
        "acme.com-npu-0": "acme.com/npu",
        "dri-renderD128": "PCI 8086:5912, driver i915",
        "ttyUSB1": "FTDI FT232R USB UART",
        "video0": "Webcam C270",
        "snd-controlC0": "PCH",
    }
    assert [(each["what"], each["reason"].partition(":")[0]) for each in data["unsuggested"]] == [
        (
            "k8s.device-plugin.nvidia.com/gpu",
            "belongs to another allocator, which gives the devices to its own containers",
        ),
        ("NVIDIA GPU", "needs a CDI spec"),
        ("PCI 1a03:2000, driver ast", "driver ast made no device node for computing"),
        ("built-in port", "is the console of the machine"),
        ("SanDisk Cruzer", "is a disk, which the machine may use"),
    ]
    assert data["problems"] == []


def test_a_claim_is_named_where_it_says_more_than_a_count(machine: Machine) -> None:
    whole(machine)
    data = scanned(machine)
    several = {each["declaration"]["name"] for each in data["resources"] if len(each["devices"]) > 1}
    assert several == {f"{scan.DOMAIN}/serial"}
    assert {each["declaration"]["name"] for each in data["resources"] if "api: dra" in each["about"]} == several


def test_the_printed_declaration_is_valid_and_finds_these_devices(machine: Machine) -> None:
    whole(machine)
    data = scanned(machine, domain="acme.io")
    declared = yaml.safe_load(scan.to_yaml(data))["node_devices_resources"]
    assert declared == [each["declaration"] for each in data["resources"]]
    resources = parse_resources(declared)
    root = str(machine.path)
    again = asyncio.run(Discoverer(LinksInside(root), root).discover(resources, dict, spec_dirs=SPEC_DIRS))
    devices = {
        each.name: [*each.devices, *(again[each.name].devices if each.name in again else ())] for each in resources
    }
    assert {name.partition("/")[2]: [each.id for each in devices[name]] for name in devices} == found(data)


def test_a_machine_without_devices_says_so(machine: Machine) -> None:
    data = scanned(machine)
    assert data == {"resources": [], "unsuggested": [], "problems": []}
    assert scan.to_text(data) == "No device was found that a declaration could offer."
    assert yaml.safe_load(scan.to_yaml(data)) == {"node_devices_resources": []}


def test_adapters_of_several_models_are_several_resources(machine: Machine) -> None:
    adapter(machine, "1-2", 0, by_id="usb-FTDI_A-if00-port0")
    adapter(machine, "1-3", 1, model="10c4:ea60")
    data = scanned(machine)
    assert found(data) == {"serial-0403-6001": ["usb-0403-6001-1-2"], "serial-10c4-ea60": ["usb-10c4-ea60-1-3"]}
    assert [device["nodes"] for each in data["resources"] for device in each["devices"]] == [
        [{"path": "/dev/ttyUSB0", "host_path": "/dev/ttyUSB0"}],
        [{"path": "/dev/ttyUSB1", "host_path": "/dev/ttyUSB1"}],
    ]


def test_cameras_are_named_by_id_and_metadata_nodes_left_out(machine: Machine) -> None:
    camera(machine, "1-4", 0)
    camera(machine, "1-5", 2)
    machine.link("/dev/v4l/by-id/usb-046d_C270_1-video-index0", "../../video0")
    machine.link("/dev/v4l/by-id/usb-046d_C270_1-video-index1", "../../video1")
    assert declaration(scanned(machine), "camera")["discover"] == {
        "paths": ["/dev/v4l/by-id/*-video-index0", "/dev/video2"]
    }


def test_a_gpu_that_a_cdi_spec_names_is_not_suggested_a_second_time(machine: Machine) -> None:
    gpu = pci(machine, "0000:03:00.0", "030000", "1002:73bf", "amdgpu")
    node(machine, gpu + "/drm/renderD128", "dri/renderD128")
    machine.link(f"/sys/devices/{gpu}/drm/renderD128/device", "../..")
    machine.file("/dev/kfd")
    assert declaration(scanned(machine), "gpu")["discover"] == {
        "paths": ["/dev/dri/renderD*"],
        "nodes": [{"path": "/dev/kfd"}],
    }
    spec(machine, "amd.com/gpu", {"0": ["/dev/kfd", "/dev/dri/renderD128"], "1": ["/dev/kfd", "/dev/dri/renderD129"]})
    data = scanned(machine)
    assert found(data) == {"amd-gpu": ["amd.com-gpu-0", "amd.com-gpu-1"]}
    assert data["unsuggested"] == []


def test_gpus_of_several_drivers_are_several_resources(machine: Machine) -> None:
    for number, (model, driver) in enumerate((("8086:5912", "i915"), ("1002:73bf", "amdgpu"), ("10de:2204", "nvidia"))):
        gpu = pci(machine, f"0000:0{number}:00.0", "030000", model, driver)
        node(machine, f"{gpu}/drm/renderD{128 + number}", f"dri/renderD{128 + number}")
        machine.link(f"/sys/devices/{gpu}/drm/renderD{128 + number}/device", "../..")
    machine.file("/dev/nvidia0")
    data = scanned(machine)
    assert found(data) == {"gpu-i915": ["dri-renderD128"], "gpu-amdgpu": ["dri-renderD129"]}
    assert [each["nodes"] for each in data["unsuggested"]] == [["/dev/nvidia0"]]


def test_a_class_that_hangs_or_fails_costs_only_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(root: Root) -> Any:
        time.sleep(3)
        return iter(())

    def failing(root: Root) -> Any:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")

    rules = [("hanging", hanging), ("CDI kinds", failing), *(each for each in suggestions.RULES if "shared" in each[0])]
    monkeypatch.setattr(scan, "RULES", rules)
    machine.file("/dev/kvm")
    root = str(machine.path)
    links = LinksInside(root)
    links.calls = BoundedCalls(limit=0.3)
    data = asyncio.run(scan.scan(links=links, root=root))
    assert found(data) == {"kvm": ["kvm"]}
    assert data["problems"] == [
        "hanging: did not answer in 0.3 s",
        "CDI kinds: this Python has no module yaml, which YAML specs need: install PyYAML",
    ]
    assert "\n# Not complete: hanging: did not answer in 0.3 s" in scan.to_yaml(data)
    assert "Not complete: hanging: did not answer in 0.3 s" in scan.to_text(data)


def test_kinds_of_one_name_and_a_kind_that_no_resource_can_have(machine: Machine) -> None:
    for kind, names in (("acme.com/npu", "01"), ("acme.org/npu", "02"), ("acme.com/" + "x" * 70, "0")):
        spec(machine, kind, {name: [f"/dev/{kind}{name}"] for name in names})
    data = scanned(machine)
    assert found(data) == {
        "acme-npu": ["acme.com-npu-0", "acme.com-npu-1"],
        "acme-npu-2": ["acme.org-npu-0", "acme.org-npu-2"],
    }
    assert data["unsuggested"] == []
    (problem,) = data["problems"]
    assert problem.startswith("CDI kind[0] (devices.example.com/acme-xxx")


def test_names_of_devices_cannot_leave_their_comment(machine: Machine) -> None:
    usb(machine, "1-5", "1209:0001", "Evil", "Key\nnode_devices_resources: []\x1b[2J")
    text = scan.to_yaml(scanned(machine))
    assert "# USB device: Evil Key\\nnode_devices_resources: []\\x1b[2J" in text
    assert len(yaml.safe_load(text)["node_devices_resources"]) == 1


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan"]) == 0
    assert "CLASS" in capsys.readouterr().out or not os.path.exists("/dev/kvm")
    assert main(["scan", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["resources"]
    assert main(["scan", "-o", "yaml", "--domain", "acme.io"]) == 0
    declared = yaml.safe_load(capsys.readouterr().out)["node_devices_resources"]
    assert len(declared) == len(listed)
    assert all(each["name"].startswith("acme.io/") for each in declared)


def test_a_domain_that_resources_cannot_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--domain", "Acme"]) == 1
    assert capsys.readouterr().err.startswith("node-device-plugin: --domain: the domain 'Acme' is not")
