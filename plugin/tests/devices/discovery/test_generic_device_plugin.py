"""The examples of generic-device-plugin, as docs/generic-device-plugin.md declares them, find what they find there."""

from pathlib import Path
from typing import Any

import yaml

from node_device_plugin.declaration import parse_resources

from .conftest import Machine, find

PAGE = Path(__file__).parents[4] / "docs" / "generic-device-plugin.md"


def found(machine: Machine) -> dict[str, list[Any]]:
    """Resource to what each of its devices is in a container, and on the host."""
    (block,) = [part.partition("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]]
    (resources,) = yaml.safe_load(block).values()
    return {
        resource.name.partition("/")[2]: [
            {node.path: node.host_path for node in device.nodes}
            for device in (*resource.devices, *find(resource, str(machine.path)))
        ]
        for resource in parse_resources(resources)
    }


def test_what_they_find(machine: Machine) -> None:
    for name in (
        *("ttyUSB0", "ttyUSB1", "ttyACM0", "video0", "video1", "fuse", "ttyS0", "modem0", "modem1", "gps1"),
        *("snd/timer", "snd/controlC0", "snd/pcmC0D0c", "snd/controlC2", "snd/pcmC2D0c", "snd/by-path/a"),
    ):
        machine.file("/dev/" + name)
    # A card that cannot record.
    machine.file("/dev/snd/controlC1")
    for port, vendor, product, serial in (("1-1", "1a86", "7523", ""), ("1-2", "1209", "000f", "00000001")):
        machine.on_bus("usb", "pci/usb1/" + port, idVendor=vendor, idProduct=product, serial=serial)
        machine.node_of("pci/usb1/" + port, "bus/usb/001/00" + port[-1])
        machine.node_of("pci/usb1/%s/%s:1.0/tty/tty%s" % (port, port, port), "tty" + port)
    machine.on_bus("usb", "pci/usb1/1-3", idVendor="1209", idProduct="000f", serial="2", devname="bus/usb/001/003")
    sound = ["timer", "controlC0", "controlC1", "controlC2", "pcmC0D0c", "pcmC2D0c"]
    assert found(machine) == {
        "serial": [{"/dev/" + name: "/dev/" + name} for name in ("ttyACM0", "ttyUSB0", "ttyUSB1")],
        "video": [{"/dev/video0": "/dev/video0"}],
        "fuse": [{"/dev/fuse": "/dev/fuse"}],
        "audio": [{"/dev/snd/" + name: "/dev/snd/" + name for name in sound}],
        "capture": [
            {
                "/dev/snd/controlC0": "/dev/snd/controlC%d" % card,
                "/dev/snd/pcmC0D0c": "/dev/snd/pcmC%dD0c" % card,
            }
            for card in (0, 2)
        ],
        "ch340": [{path: path} for path in ("/dev/bus/usb/001/001", "/dev/bus/usb/001/002")],
        "named": [{"/dev/serial/ttyS0": "/dev/ttyS0"}],
        "modem": [{"/dev/modem0": "/dev/modem0"}, {"/dev/modem1": "/dev/modem1", "/dev/gps1": "/dev/gps1"}],
        "data": [{}],
    }
