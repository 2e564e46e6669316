"""The declarations that ``scan`` suggests for the classes of devices on this machine.

A device belongs to the first suggestion that finds the device, so the order of ``RULES`` matters. All rules only read
the file system and open no device.

Sources in the kernel: the type of a serial port is 0 if no hardware was found (Documentation/ABI/testing/sysfs-tty). A
camera's nodes with an ``index`` above 0 provide metadata and no images (drivers/media/v4l2-core/v4l2-dev.c and
drivers/media/usb/uvc). A virtual function has the link ``physfn`` (Documentation/ABI/testing/sysfs-bus-pci). The
numbers of PCI classes are from include/linux/pci_ids.h.
"""

from __future__ import annotations

import collections
import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple, Union

from ..cdi.directories import check_directories
from ..cdi.resolution import Resolution
from ..declaration.model import Discovery, PciSelector, UsbSelector
from ..declaration.names import foreign_kind_problem
from ..devices.discovery.method import Found
from ..devices.discovery.pci import DIRECTORY as PCI
from ..devices.discovery.pci import Pci
from ..devices.discovery.root import Root
from ..devices.discovery.sysfs import upward
from ..devices.discovery.usb import DIRECTORY as USB
from ..devices.discovery.usb import Usb

#: Suggested number of containers that share a device such as /dev/kvm.
_SHARES = 100
_HUB = "09"
#: PCI classes of accelerators: processing accelerators (also FPGAs), co-processors, signal processing.
_ACCELERATORS = ("12", "0b40", "1180")
_DISPLAY, _NETWORK = "03", "02"


class Suggestion(NamedTuple):
    """A resource to declare. name: without the domain. about: a remark for the user; may be empty."""

    kind: str
    name: str
    declaration: dict[str, Any]
    about: str = ""


class Unsuggested(NamedTuple):
    """Devices without a suggestion, with the reason.

    nodes: host paths. address: a PCI device's address. ``scan`` ignores an entry if a suggestion has one of its nodes
    or its address.
    """

    kind: str
    what: str
    nodes: tuple[str, ...]
    reason: str
    address: str = ""


Rule = Callable[[Root], Iterator[Union[Suggestion, Unsuggested]]]


def _cdi_kinds(root: Root) -> Iterator[Suggestion | Unsuggested]:
    for kind in sorted({name.partition("=")[0] for name in _specs(root).foreign()}):
        vendor, _slash, label = kind.partition("/")
        if foreign_kind_problem(kind):
            reason = "belongs to another allocator, which gives the devices to its own containers"
            yield Unsuggested("CDI kind", kind, (), reason)
        else:
            name = f"{vendor.partition('.')[0]}-{label}"
            yield Suggestion("CDI kind", name, {"discover": {"cdi": {"kind": kind}}})


def _gpus(root: Root) -> Iterator[Suggestion | Unsuggested]:
    in_specs = _in_specs(root)
    for path in _nodes("/dev/nvidia[0-9]*", root):
        if path not in in_specs:
            command = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            yield Unsuggested("GPU", "NVIDIA GPU", (path,), f"needs a CDI spec: run {command}, then scan again")
    of_driver: dict[str, list[str]] = collections.defaultdict(list)
    for path in _nodes("/dev/dri/renderD*", root):
        of_driver[root.link_name(f"/sys/class/drm/{os.path.basename(path)}/device/driver") or ""].append(path)
    is_alone = len(of_driver) == 1
    # A render node is not enough for NVIDIA's driver.
    of_driver.pop("nvidia", None)
    for driver, paths in of_driver.items():
        discover: dict[str, Any] = {"paths": ["/dev/dri/renderD*"] if is_alone else paths}
        if driver == "amdgpu" and _nodes("/dev/kfd", root):
            discover["nodes"] = [{"path": "/dev/kfd"}]
        yield Suggestion("GPU", "gpu" if is_alone or not driver else f"gpu-{driver}", {"discover": discover})


def _vfio(root: Root) -> Iterator[Suggestion]:
    for model, devices in _pci_models(root).items():
        if any(_nodes("/dev/vfio/" + device.properties["iommu_group"], root) for device in devices):
            yield Suggestion(
                "VFIO group",
                f"vfio-{model}",
                {"discover": {"vfio": [_selector(model, "device")]}, **_env(f"pci-{model}", "{address}")},
                "Whoever holds the device holds all devices of its IOMMU group.",
            )


def _virtual_functions(root: Root) -> Iterator[Suggestion]:
    for model, devices in _pci_models(root, _NETWORK).items():
        if any(root.is_link(f"{PCI}/{device.properties['address']}/physfn") for device in devices):
            yield Suggestion(
                "network VF",
                f"vf-{model}",
                {"discover": {"pci": [_selector(model, "device")]}, **_env(f"pci-{model}", "{address}")},
                "A container gets the PCI address in a variable. A CNI plugin has to move the interface.",
            )


def _infiniband(root: Root) -> Iterator[Suggestion]:
    if _nodes("/dev/infiniband/uverbs*", root):
        discover: dict[str, Any] = {"paths": ["/dev/infiniband/uverbs*"]}
        if _nodes("/dev/infiniband/rdma_cm", root):
            discover["nodes"] = [{"path": "/dev/infiniband/rdma_cm"}]
        yield Suggestion("InfiniBand", "rdma", {"discover": discover})


def _adapters(root: Root) -> Iterator[Suggestion]:
    """Serial ports of USB adapters and modems. If all models are known, each model becomes a resource."""
    patterns = ["/dev/serial/by-id/*"]
    known = {root.device_node(path) for path in root.glob(patterns[0])}
    for pattern in ("/dev/ttyUSB*", "/dev/ttyACM*"):
        if set(_nodes(pattern, root)) - known:
            patterns.append(pattern)
    ports = {root.device_node(path) for pattern in patterns for path in root.glob(pattern)} - {None}
    models = {_usb_model(path, root) for path in ports if path is not None}
    if len(models) > 1 and "" not in models:
        for model in sorted(models):
            discover = {"usb": [_selector(model, "product")], "nodes": [{"path": "/dev/tty*"}]}
            name = f"serial-{model}"
            yield Suggestion("serial port", name, {"discover": discover, **_env(name, "{path}")})
    elif ports:
        patterns = [pattern for pattern in patterns if _nodes(pattern, root)]
        yield Suggestion("serial port", "serial", {"discover": {"paths": patterns}, **_env("serial", "{path}")})


def _uarts(root: Root) -> Iterator[Suggestion | Unsuggested]:
    consoles = root.text("/sys/class/tty/console/active").split()
    free = []
    for path in (*_nodes("/dev/ttyS*", root), *_nodes("/dev/ttyAMA*", root)):
        name = os.path.basename(path)
        if root.text(f"/sys/class/tty/{name}/type") in ("", "0"):
            continue
        if name in consoles:
            yield Unsuggested("serial port", "built-in port", (path,), "is the console of the machine")
        else:
            free.append(path)
    if free:
        yield Suggestion("serial port", "uart", _declared(free))


def _cameras(root: Root) -> Iterator[Suggestion]:
    def index(path: str) -> str:
        return root.text(f"/sys/class/video4linux/{os.path.basename(path)}/index")

    by_id = "/dev/v4l/by-id/*-video-index0"
    known = {root.device_node(path) for path in root.glob(by_id)}
    nodes = _nodes("/dev/video*", root)
    others = [path for path in nodes if path not in known and index(path) in ("", "0")]
    if nodes and others == nodes:
        others = ["/dev/video*"]
    paths = [by_id, *others] if known - {None} else others
    if paths:
        yield Suggestion("video", "camera", {"discover": {"paths": paths}, **_env("camera", "{path}")})


def _sound(root: Root) -> Iterator[Suggestion]:
    if _nodes("/dev/snd/pcmC*", root):
        nodes = [{"path": "/dev/snd/pcmC{match1}D*"}]
        if _nodes("/dev/snd/timer", root):
            nodes.append({"path": "/dev/snd/timer"})
        yield Suggestion("sound card", "sound", {"discover": {"paths": ["/dev/snd/controlC*"], "nodes": nodes}})


def _tpms(root: Root) -> Iterator[Suggestion]:
    paths = _nodes("/dev/tpmrm[0-9]*", root)
    if paths:
        yield Suggestion("TPM", "tpm", _declared(paths))


def _watchdogs(root: Root) -> Iterator[Suggestion]:
    # /dev/watchdog is a second name of the first watchdog.
    paths = _nodes("/dev/watchdog[0-9]*", root) or _nodes("/dev/watchdog", root)
    if paths:
        about = "If a container opens a watchdog and stops writing to it, the machine restarts."
        yield Suggestion("watchdog", "watchdog", _declared(paths), about)


def _shared(root: Root) -> Iterator[Suggestion]:
    for kind, path in (("KVM", "/dev/kvm"), ("FUSE", "/dev/fuse"), ("network tunnel", "/dev/net/tun")):
        if _nodes(path, root):
            declaration = {**_declared([path]), "replicas": _SHARES, "container_limit": 1}
            yield Suggestion(kind, os.path.basename(path), declaration, f"Up to {_SHARES} containers share the device.")


def _usb_devices(root: Root) -> Iterator[Suggestion | Unsuggested]:
    """Every other USB device. This rule is last, so that the more specific rules get their devices first."""
    disks = set(root.names("/sys/class/block"))
    models: dict[str, None] = {}
    for device in Usb().find(Discovery(usb=(UsbSelector(),)), root):
        directory = f"{USB}/{device.properties['port']}"
        nodes = tuple(node.host_path for node in device.own)
        if root.text(directory + "/bDeviceClass") == _HUB:
            continue
        if any(os.path.basename(path) in disks for path in nodes):
            yield Unsuggested("USB device", usb_name(directory, root), nodes, "is a disk, which the machine may use")
        else:
            models.setdefault("{vendor}-{product}".format(**device.properties))
    for model in models:
        yield Suggestion("USB device", f"usb-{model}", {"discover": {"usb": [_selector(model, "product")]}})


def _accelerators(root: Root) -> Iterator[Suggestion | Unsuggested]:
    """Accelerators on the PCI bus, and GPUs and accelerators for which no driver made a device node."""
    for model, devices in _pci_models(root, *_ACCELERATORS).items():
        if any(device.own for device in devices):
            yield Suggestion("accelerator", f"accelerator-{model}", {"discover": {"pci": [_selector(model, "device")]}})
    in_specs = _in_specs(root)
    for kind, classes in (("accelerator", _ACCELERATORS), ("GPU", (_DISPLAY,))):
        for device in (each for devices in _pci_models(root, *classes).values() for each in devices):
            driver, address = device.attributes.driver, device.properties["address"]
            nodes = tuple(node.host_path for node in device.own)
            reason = f"driver {driver} made no device node for computing" if driver else "has no driver"
            # _gpus has already listed an NVIDIA GPU with a device node.
            if in_specs.isdisjoint(nodes) and not (driver == "nvidia" and _nodes("/dev/nvidia[0-9]*", root)):
                yield Unsuggested(kind, pci_name(f"{PCI}/{address}", root), nodes, reason, address)


#: Each rule, with the name that messages use. The suggestions of an earlier rule get devices first.
RULES: Sequence[tuple[str, Rule]] = (
    ("CDI kinds", _cdi_kinds),
    ("GPUs", _gpus),
    ("VFIO groups", _vfio),
    ("accelerators", _accelerators),
    ("virtual functions", _virtual_functions),
    ("InfiniBand", _infiniband),
    ("USB serial ports", _adapters),
    ("built-in serial ports", _uarts),
    ("video devices", _cameras),
    ("sound cards", _sound),
    ("TPMs", _tpms),
    ("watchdogs", _watchdogs),
    ("shared devices", _shared),
    ("USB devices", _usb_devices),
)


def usb_name(directory: str, root: Root) -> str:
    """A USB device's manufacturer and product, or else its ids. directory: the device's directory in sysfs."""
    texts = [root.text(f"{directory}/{name}") for name in ("manufacturer", "product")]
    numbers = ":".join(root.text(f"{directory}/{name}") for name in ("idVendor", "idProduct"))
    return " ".join(filter(None, texts)) or numbers


def pci_name(directory: str, root: Root) -> str:
    """The ids and the driver of a PCI device. directory: the device's directory in sysfs."""
    numbers = ":".join(root.text(f"{directory}/{name}")[2:] for name in ("vendor", "device"))
    driver = root.link_name(directory + "/driver")
    return f"PCI {numbers}" + (f", driver {driver}" if driver else "")


def class_directory(path: str, root: Root) -> str:
    """The sysfs directory of the device with this node; empty if no sysfs class contains the device."""
    links = root.glob(f"/sys/class/*/{glob.escape(os.path.basename(path))}")
    return (root.resolve(links[0]) or "") if links else ""


def _nodes(pattern: str, root: Root) -> list[str]:
    """The matching paths that lead to a device node."""
    return [path for path in root.glob(pattern) if root.device_node(path)]


def _specs(root: Root) -> Resolution:
    return Resolution(check_directories([root.on_host(directory) for directory in root.spec_dirs], None))


def _in_specs(root: Root) -> set[str]:
    """The host paths in other programs' CDI specs."""
    specs = _specs(root)
    return {path.path for name in specs.foreign() for path in specs.host_paths(name)}


def _pci_models(root: Root, *classes: str) -> dict[str, list[Found]]:
    """The PCI devices of these classes (none: all classes), by ``vendor-device``."""
    models: dict[str, list[Found]] = collections.defaultdict(list)
    for device in Pci().find(Discovery(pci=(PciSelector(),)), root):
        if device.properties["class_code"].startswith(classes or ("",)):
            models["{vendor}-{device}".format(**device.properties)].append(device)
    return models


def _usb_model(path: str, root: Root) -> str:
    """``vendor-product`` of the USB device behind a device node; empty if there is none."""
    for directory in upward(class_directory(path, root)):
        vendor = root.text(directory + "/idVendor")
        if vendor:
            return "{}-{}".format(vendor, root.text(directory + "/idProduct"))
    return ""


def _selector(model: str, second: str) -> dict[str, str]:
    vendor, _dash, number = model.partition("-")
    return {"vendor": vendor, second: number}


def _declared(paths: Sequence[str]) -> dict[str, Any]:
    """Declared devices with one node each, for paths that never change."""
    return {"devices": [{"id": os.path.basename(path), "nodes": [{"path": path}]} for path in paths]}


def _env(name: str, value: str) -> dict[str, Any]:
    return {"env": {"%s_{index}" % name.upper().replace("-", "_"): value}}
