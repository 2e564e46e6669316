"""Every method of discovery is whole, and what it learns of a device is on the device."""

import inspect
from typing import Any

import pytest

from node_device_plugin.declaration import parse_configuration, parse_resources, schema
from node_device_plugin.declaration.model import DISCOVERY_METHODS, Attributes, Device, Discovery
from node_device_plugin.devices.commands import environment
from node_device_plugin.devices.discovery import METHODS
from node_device_plugin.devices.discovery.method import DiscoveryMethod
from node_device_plugin.devices.health import CdiNames
from node_device_plugin.devices.host_directories import host_directories
from node_device_plugin.diagnostics.discovered import to_data

from .conftest import Machine, resource
from .test_buses import pci, usb

#: A declaration for each method, and what it needs of the node.
EXAMPLES: dict[str, tuple[Any, tuple[str, ...], bool]] = {
    "paths": (["/dev/tty*"], ("/dev",), False),
    "usb": ([{"vendor": "0403"}], ("/dev",), True),
    "pci": ([{"vendor": "10de"}], ("/dev",), True),
    "vfio": ([{"vendor": "10de"}], ("/dev",), True),
    "udev": ([{"subsystem": "tty"}], ("/dev", "/run/udev/data"), True),
    "cdi": ({"kind": "nvidia.com/gpu"}, ("/dev", "/etc/cdi"), False),
}


def test_a_method_of_the_declaration_has_a_module_and_the_other_way_round() -> None:
    assert tuple(method.key for method in METHODS) == DISCOVERY_METHODS == tuple(EXAMPLES)
    assert set(DISCOVERY_METHODS) <= set(schema.DISCOVER)
    # A new key fails here until a method finds its devices.
    others = {"nodes", "exclude", "container_path", "id_prefix", "identify_by", "permissions", "uid", "gid", "mode"}
    assert set(schema.DISCOVER) - others == set(DISCOVERY_METHODS)
    assert set(Discovery._fields) == set(schema.DISCOVER)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.key))
def test_a_method_says_all_that_the_plugin_asks(method: DiscoveryMethod) -> None:
    selector, directories, needs_uevents = EXAMPLES[method.key]
    declared = {"resources": [{"name": "example.com/dev", "discover": {method.key: selector}}]}
    specs = ["/etc/cdi"] if method.key == "cdi" else []
    configuration = parse_configuration({**declared, "cdi_spec_dirs": specs})
    discovery = configuration.resources[0].discover
    assert host_directories(configuration) == directories
    assert method.needs_uevents is needs_uevents
    # A directory or a message of the kernel tells of a new device; directories of specs are always watched.
    assert method.needs_uevents or specs or list(method.watch_paths(discovery))
    for name, member in inspect.getmembers(DiscoveryMethod, inspect.isfunction):
        if not name.startswith("_"):
            assert list(inspect.signature(member).parameters)[1:] == list(
                inspect.signature(getattr(method, name)).parameters
            )


def test_what_a_bus_tells_of_a_device_is_on_the_device(machine: Machine) -> None:
    directory = usb(machine, "1-2", 4, serial="A50285BI")
    machine.link("/sys/devices/%s/driver" % directory, "../../../../../bus/usb/drivers/usb")
    machine.link("/sys/devices/%s/subsystem" % directory, "../../../../../bus/usb")
    (found,) = machine.find({"usb": [{"vendor": "0403"}]})
    assert found.attributes == Attributes(
        pcie_root="pci0000:00",
        usb_vendor="0403",
        usb_product="6001",
        usb_serial="A50285BI",
        usb_port="0000:00:14.0-2",
        driver="usb",
        subsystem="usb",
    )
    card = pci(machine, "0000:3b:00.0", numa_node="1")
    machine.link("/sys/devices/%s/driver" % card, "../../../bus/pci/drivers/vfio-pci")
    machine.node_of(card + "/drm/card1", "dri/card1")
    (found,) = machine.find({"pci": [{"vendor": "10de"}]})
    assert found.attributes == Attributes(pci_address="0000:3b:00.0", pcie_root="pci0000:00", driver="vfio-pci")
    assert found.numa_node == 1


def test_another_driver_is_another_finding(machine: Machine) -> None:
    card = pci(machine, "0000:3b:00.0")
    machine.node_of(card + "/drm/card1", "dri/card1")
    for driver in ("nouveau", "vfio-pci"):
        machine.link("/sys/devices/%s/driver" % card, "../../../bus/pci/drivers/" + driver)
        (found,) = machine.find({"pci": [{"vendor": "10de"}]})
        assert found.attributes.driver == driver


def with_attributes() -> Device:
    (only,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d", "nodes": [{"path": "/dev/null"}]}]}])
    return only.devices[0]._replace(attributes=Attributes(pci_address="0000:3b:00.0", driver="vfio-pci"))


def test_health_commands_and_the_command_discover_tell_what_is_known() -> None:
    device = with_attributes()
    told = environment(resource({"pci": [{"vendor": "10de"}]}), device)
    assert {key: told[key] for key in told if key.startswith("DEVICE_")} == {
        "DEVICE_ID": "d",
        "DEVICE_PATH": "/dev/null",
        "DEVICE_PCI_ADDRESS": "0000:3b:00.0",
        "DEVICE_DRIVER": "vfio-pci",
    }
    declared = resource({}, devices=[])._replace(devices=(device,))
    (data,) = to_data([declared], {}, CdiNames(()))["resources"]
    assert data["devices"][0]["attributes"] == {"pci_address": "0000:3b:00.0", "driver": "vfio-pci"}


def test_a_pod_sees_the_nodes_of_other_programs_specs() -> None:
    device = {"id": "gpu0", "cdi_devices": ["nvidia.com/gpu=0"]}
    declared = {"resources": [{"name": "example.com/gpu", "devices": [device]}]}
    assert host_directories(parse_configuration(declared)) == ("/dev", "/etc/cdi")
