"""The key ``discover``: read, written again, and every mistake in it named."""

from typing import Optional

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, cdi, parse_resources
from node_device_plugin.declaration.model import DeviceNode, Discovery, PciSelector, UdevSelector, UsbSelector
from node_device_plugin.declaration.patterns import compiled, wildcards
from node_device_plugin.declaration.serialise import resources_to_data

EVERYTHING = """
- name: example.com/dev
  devices: [{id: d, numa_node: 1, nodes: [{path: /dev/d, type: c, major: 1, minor: 3}], properties: {vendor: "1"}}]
  discover:
    paths: ["/dev/video[0-9]*"]
    usb: [{vendor: "0403", product: 6A01, serial: A*, driver: ftdi_*}]
    pci: [{vendor: 10DE, device: 1eb8, class_code: "0302", driver: vfio-pci}]
    udev: [{subsystem: tty, properties: {ID_SERIAL: FTDI*}}, {subsystem: tpm}]
    nodes: [{path: /dev/ctl, container_path: /dev/control}, {path: /dev/dri/card*, optional: true}]
    exclude: [/dev/video9, "0000:00:*"]
    identify_by: port
    permissions: r
    uid: 0
    gid: 44
    mode: "0660"
"""


def problems(text: str) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse_resources(yaml.safe_load(text))
    return [str(problem) for problem in caught.value.problems]


def test_everything_is_read_and_written_again() -> None:
    resources = parse_resources(yaml.safe_load(EVERYTHING))
    assert parse_resources(resources_to_data(resources)) == resources
    (resource,) = resources
    assert resource.discover.usb == (UsbSelector("0403", "6a01", "A*", "ftdi_*"),)
    assert resource.discover.pci == (PciSelector("10de", "1eb8", "0302", "vfio-pci"),)
    assert resource.discover.methods == ("paths", "usb", "pci", "udev")
    assert resource.discover.udev == (UdevSelector("tty", {"ID_SERIAL": "FTDI*"}), UdevSelector("tpm"))
    assert resource.discover.identify_by == "port"
    assert (resource.discover.mode, resource.discover.permissions) == (0o660, "r")
    assert resource.devices[0].numa_node == 1
    assert resource.devices[0].nodes == (DeviceNode("/dev/d", "/dev/d", "rw", None, None, None, "c", 1, 3),)


def test_nothing_is_discovered_by_default() -> None:
    (resource,) = parse_resources([{"name": "a.b/c"}])
    assert resource.discover == Discovery()
    assert not resource.dynamic_cdi
    assert resources_to_data([resource]) == [{"name": "a.b/c", "devices": []}]


def test_the_spec_of_a_discovered_kind_is_the_plugins_alone() -> None:
    declared, discovered = parse_resources(
        [
            {"name": "a.b/declared", "devices": [{"id": "x", "nodes": [{"path": "/dev/x"}]}]},
            {
                "name": "a.b/discovered",
                "devices": [{"id": "y", "nodes": [{"path": "/dev/y"}]}],
                "discover": {"paths": ["/dev/z*"]},
            },
        ]
    )
    assert list(cdi.render_specs([declared, discovered])) == [cdi.file_name("a.b/declared")]
    assert discovered.uses_cdi
    assert discovered.dynamic_cdi


@pytest.mark.parametrize(
    ("discover", "says"),
    [
        ("{exclude: [/dev/x]}", "discover: selects no devices: set paths, usb, pci, vfio, udev or cdi"),
        ("{paths: [/dev/x], identify_by: port}", "discover.identify_by: applies only to usb: remove identify_by"),
        ("{usb: [{vendor: '0403'}], identify_by: hub}", "discover.identify_by: must be one of serial, port, not 'hub'"),
        ("{paths: [dev/x]}", "discover.paths[0]: must be an absolute path without '.', '..'"),
        ("{paths: [/dev/**/x]}", "discover.paths[0]: '**' is not supported: write one '*' for each"),
        ("{paths: ['/dev/[z-a]']}", "discover.paths[0]: the range in '[z-a]' ends before it begins"),
        ("{paths: ['/dev/tty{USB,ACM}*']}", "discover.paths[0]: '{' and '}' are not supported: write one"),
        ("{paths: ['/dev/{match1}']}", "discover.paths[0]: '{' and '}' are not supported"),
        ("{paths: ['/dev/x[^0]']}", "discover.paths[0]: '[^' is not supported: write '[!' to match"),
        ("{paths: ['/dev/x[0']}", "discover.paths[0]: has a '[' without a ']'"),
        ("{paths: [/dev/x*], nodes: [{path: '/dev/{match1,a}'}]}", "discover.nodes[0].path: '{' and '}' are not"),
        ("{paths: [/dev/x*], exclude: ['/dev/{x1,x2}']}", "discover.exclude[0]: '{' and '}' are not supported"),
        ("{paths: [/dev/x], nodes: [{path: '/dev/{match1}'}]}",
         "discover.nodes[0].path: the placeholder {match1} is unknown; discovered devices have: none"),
        ("{paths: [/dev/x*], nodes: [{}]}", "discover.nodes[0].path: is missing"),
        ("{paths: [/dev/x*], nodes: [{path: x}]}", "discover.nodes[0].path: must be an absolute path"),
        ("{paths: [/dev/x*], permissions: x}", "discover.permissions: must be made of r, w and m"),
        ("{paths: [/dev/x*], mode: '9'}", "discover.mode: must be three octal digits"),
        ("{paths: [/dev/x*], exclude: ['']}", "discover.exclude[0]: is empty"),
        ("{paths: [/dev/x*], exclude: ['*-part?']}", "discover.exclude[0]: can match no path, because no wildcard"),
        ("{paths: [/dev/x*], exclude: [a**]}", "discover.exclude[0]: '**' is not supported"),
        ("{paths: [/dev/x*], container_path: x}", "discover.container_path: must be an absolute path"),
        ("{paths: [/dev/x*], container_path: '/dev/{match2}'}",
         "discover.container_path: the placeholder {match2} is unknown; discovered devices have: match1, name"),
        ("{paths: [/dev/x*], container_path: '/dev/y*{name}'}", "discover.container_path: must not contain wildcards"),
        ("{paths: [/dev/x*], container_path: /dev/y}",
         "discover.container_path: is the same for every device, so that a container with several devices would"),
        ("{paths: [/dev/x*], usb: [{vendor: 0bda}], container_path: '/dev/{name}'}",
         "discover.container_path: applies only to paths and udev: for other methods, set container_path"),
        ("{usb: [{vendor: 0bda}], nodes: [{path: /dev/video*, container_path: /dev/video0}]}",
         "discover.nodes[0].container_path: is the same for every device"),
        ("{usb: [{vendor: 0bda}], nodes: [{path: /dev/video*, container_path: '/dev/{nme}'}]}",
         "discover.nodes[0].container_path: the placeholder {nme} is unknown; discovered devices have: busnum, "),
        ("{paths: [/dev/x*], id_prefix: '-a'}", "discover.id_prefix: must be at most 30 letters"),
        ("{usb: [{}]}", "discover.usb[0]: is empty and would match every USB device"),
        ("{usb: [{vendor: '403'}]}", "discover.usb[0].vendor: must be four hexadecimal digits, in quotes, not '403'"),
        ("{usb: [{vendor: 403}]}", "discover.usb[0].vendor: must be text, not a number"),
        ("{usb: [{product: 40g0}]}", "discover.usb[0].product: must be four hexadecimal digits"),
        ("{usb: [{serial: '**'}]}", "discover.usb[0].serial: '**' is not supported"),
        ("{usb: [{driver: 'a**'}]}", "discover.usb[0].driver: '**' is not supported"),
        ("{pci: [{}]}", "discover.pci[0]: is empty and would match every PCI device: set vendor, device, class_code"),
        ("{vfio: [{}]}", "discover.vfio[0]: is empty and would match every VFIO device: set vendor, device"),
        ("{udev: [{}]}", "discover.udev[0].subsystem: is missing"),
        ("{udev: [{subsystem: ../tty}]}", "discover.udev[0].subsystem: must be the name of a directory in /sys/class"),
        ("{udev: [{subsystem: tty, properties: {A: 'b**'}}]}", "discover.udev[0].properties.A: '**' is not supported"),
        ("{udev: [{subsystem: tty, properties: {path: x}}]}",
         "discover.udev[0].properties.path: 'path' is not a placeholder's name"),
        ("{udev: [{subsystem: tty, properties: {A: x}}], container_path: '/dev/{B}'}",
         "discover.container_path: the placeholder {B} is unknown; discovered devices have: A, name"),
        ("{pci: [{driver: ''}]}", "discover.pci[0].driver: is empty"),
        ("{pci: [{device: x}]}", "discover.pci[0].device: must be four hexadecimal digits"),
        ("{pci: [{class_code: '030'}]}", "discover.pci[0].class_code: must be two, four or six hexadecimal digits"),
        ("{pci: [{class: '03'}]}", "discover.pci[0].class: is not a known key; did you mean class_code?"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(discover: str, says: str) -> None:
    found = problems("- {name: example.com/dev, discover: %s}" % discover)
    assert any(says in problem for problem in found), found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {name: a.bb/cc, discover: {paths: [/dev/x*]}, env: {A: x}}", "add {index} to the name"),
        ("- {name: a.bb/cc, discover: {paths: [/dev/x*, /dev/y]}, env: {'A_{index}': '{match1}'}}",
         "the placeholder {match1} is unknown; discovered devices have: host_path, id, index, path"),
        ("- {name: a.bb/cc, discover: {pci: [{vendor: '8086'}]}, env: {'A_{index}': '{path}'}}",
         "{path} is ambiguous, because a discovered device may have several nodes, or none: list the nodes in"),
        # A USB serial adapter also has the node /dev/bus/usb/001/007.
        ("- {name: a.bb/cc, discover: {usb: [{vendor: '0403'}]}, env: {'A_{index}': '{host_path}'}}",
         "env.A_{index}: {host_path} is ambiguous"),
        ("- {name: a.bb/c, discover: {paths: [/dev/x*]}}", "but the CDI class 'c' has fewer"),
        ("- {name: a.bb/cc, discover: {paths: [/dev/x*]}, env: {'A_{index}': x}}\n"
         "- {name: a.bb/dd, devices: [{id: d}], env: {A_7: x}}",
         "the variable A_7 is also set by a.bb/cc (A_{index})"),
        ("- {name: a.bb/cc, devices: [{id: d, numa_node: -1}]}", "numa_node: must be at least 0"),
        ("- {name: a.bb/cc, devices: [{id: d, nodes: [{path: /x, type: p}]}]}", "type: must be one of c, b"),
    ],
)  # fmt: skip
def test_what_follows_from_it_is_checked(text: str, says: str) -> None:
    found = problems(text)
    assert any(says in problem for problem in found), found


def test_placeholders_that_every_method_knows_are_fine() -> None:
    parse_resources(
        yaml.safe_load(
            """
            - name: a.bb/cc
              discover: {usb: [{vendor: "0403"}], pci: [{vendor: "8086"}], nodes: [{path: /dev/ctl}]}
              env: {"A_{index}": "{id} {path} {host_path} {vendor} {index}"}
            """
        )
    )


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        ("/dev/ttyUSB*", "/dev/ttyUSB12", ("12",)),
        ("/dev/ttyUSB*", "/dev/ttyUSB1/x", None),
        ("/dev/sd[a-c]?", "/dev/sdb1", ("b", "1")),
        ("/dev/sd[!a]", "/dev/sda", None),
        ("/dev/sd[!a]", "/dev/sd/", None),
        ("/dev/x[]^]", "/dev/x^", ("^",)),
        ("/dev/a.b", "/dev/aXb", None),
        ("/dev/*/by-*", "/dev/serial/by-id", ("serial", "id")),
    ],
)
def test_what_wildcards_match(pattern: str, text: str, groups: Optional[tuple[str, ...]]) -> None:
    match = compiled(pattern).match(text)
    assert (match.groups() if match else None) == groups
    assert groups is None or wildcards(pattern) == len(groups)


def test_a_selector_that_is_refused_is_not_called_empty() -> None:
    assert problems("- {name: a.bb/cc, discover: {usb: [{vendor: 0403}], pci: [{class_code: 0302}]}}") == [
        "resources[0] (a.bb/cc).discover.usb[0].vendor: must be text, not a number (write it in quotes: YAML reads "
        "0403 as the number 259)",
        "resources[0] (a.bb/cc).discover.pci[0].class_code: must be text, not a number (write it in quotes: YAML reads "
        "0302 as the number 194)",
    ]
