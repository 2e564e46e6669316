"""IOMMU groups with matching PCI functions, for users of VFIO such as virtual machines. Each group is one device.

Facts (the kernel's Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-kernel-iommu_groups): only a
whole IOMMU group can be given away, as /dev/vfio/<group>. The group is viable if each of its functions is bound to a
VFIO driver or to pci-stub, or to no driver, or is a PCI-to-PCI bridge. Variants of vfio-pci have ``vfio`` in their
names. iommu_group/devices has a link to each function. All groups share /dev/vfio/vfio.

A function may be usable in another way, which a reason then names. A driver may divide it into mediated devices, each
with an IOMMU group of its own: it has mdev_supported_types, and a directory for each device with the link mdev_type
(Documentation/driver-api/vfio-mediated-device.rst). Without an IOMMU, VFIO may give unprotected groups, as
/dev/vfio/noiommu-<group> (enable_unsafe_noiommu_mode of drivers/vfio). A kernel may offer character devices instead of
groups, as /dev/vfio/devices/<name> with the name from the directory vfio-dev (Documentation/driver-api/vfio.rst).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...declaration.model import Discovery
from .method import DiscoveryMethod, Found, Node
from .pci import Function, functions, hexadecimal
from .root import Root
from .sysfs import numa_node

_NODES = "/dev/vfio"
#: Classes of bridges to other buses (PCI and CardBus), which cannot be given away and stay bound to their drivers.
_BRIDGES = ("0604", "0607", "0609")
#: Y if VFIO gives functions without an IOMMU, too.
_WITHOUT_IOMMU = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
_HARMLESS = ("pci-stub", "pcieport")


class Vfio(DiscoveryMethod):
    """The IOMMU groups of the PCI bus."""

    key = "vfio"

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every IOMMU group with a matching function, by the lowest address of these functions.

        The address names the device, because a reboot may change the group's number but not the addresses.
        """
        groups: dict[str, list[Function]] = {}
        for function in sorted(functions(discovery.vfio, root), key=lambda each: _order(each.address)):
            if not function.properties["class_code"].startswith(_BRIDGES):
                groups.setdefault(function.properties["iommu_group"] or function.address, []).append(function)
        for matching in groups.values():
            yield _found(matching, root)


def _found(matching: Sequence[Function], root: Root) -> Found:
    """The IOMMU group of these functions."""
    first = matching[0]
    group, addresses = first.properties["iommu_group"], [each.address for each in matching]
    members = sorted(root.names(f"{first.directory}/iommu_group/devices"), key=_order) if group else []
    paths = (f"{_NODES}/{group}", f"{_NODES}/vfio")
    found = Found(
        name="vfio-" + first.address,
        own=(),
        on_bus=True,
        properties={**first.properties, "addresses": ",".join(addresses)},
        known_as=tuple(dict.fromkeys([*addresses, *members, paths[0]])),
        numa_node=numa_node(first.directory, root),
        attributes=first.attributes,
        drivers=first.drivers,
        identity="pci " + first.address,
    )
    divided = next(filter(None, (_divided(each, root) for each in matching)), None)
    if divided:
        return found._replace(problem=divided)
    other = next(filter(None, (_other_node(each, root) for each in matching)), "")
    if not group:
        advice = ": enable the IOMMU in the firmware, and on Intel boot with intel_iommu=on"
        if root.text(_WITHOUT_IOMMU) in ("Y", "1"):
            advice += (
                "; enable_unsafe_noiommu_mode is set, so VFIO also offers it without an IOMMU, once vfio-pci has it"
            )
        return found._replace(problem=f"{first.address} has no IOMMU group{other or advice}")
    reasons = (_in_use(f"{first.directory}/iommu_group/devices/{name}", name in addresses, root) for name in members)
    for name, reason in zip(members, reasons):
        if reason:
            advice = f"bind it to vfio-pci, for example with driverctl set-override {name} vfio-pci"
            return found._replace(problem=f"{name} of IOMMU group {group} {reason}: {advice}")
    nodes = [(path, root.device_node(path)) for path in paths]
    missing = next((path for path, host_path in nodes if host_path is None), None)
    if missing:
        return found._replace(problem=found.without(missing) + other)
    own = (Node(path, host_path, path == paths[1]) for path, host_path in nodes if host_path is not None)
    return found._replace(own=tuple(own))


def _divided(function: Function, root: Root) -> str | None:
    """Why a function is not given as a whole, if its driver divides it into mediated devices (vGPUs)."""
    names = root.names(function.directory)
    if "mdev_supported_types" not in names:
        return None
    devices = (f"{function.directory}/{name}" for name in sorted(names))
    groups = [root.link_name(each + "/iommu_group") for each in devices if root.is_link(each + "/mdev_type")]
    nodes = ", ".join(f"{_NODES}/{group}" for group in groups if group)
    what = f"{function.address} is divided into mediated devices (vGPUs) by driver {function.attributes.driver}"
    if nodes:
        return f"{what}: to offer them instead, discover their groups' nodes by paths: {nodes}"
    return f"{what}, of which none exists: create one, and discover its group's node by paths"


def _other_node(function: Function, root: Root) -> str:
    """The node by which VFIO offers the function instead of the node of its IOMMU group, with advice; or empty."""
    unprotected = f"{_NODES}/noiommu-{function.properties['iommu_group']}"
    if root.device_node(unprotected):
        advice = "enable the IOMMU in the firmware, or discover this node by paths"
        return f"; VFIO offers it without an IOMMU, with access to all memory, as {unprotected}: {advice}"
    devices = [f"{_NODES}/devices/{name}" for name in sorted(root.names(function.directory + "/vfio-dev"))]
    there = next(filter(root.device_node, devices), None)
    advice = f"use discover.pci with nodes: [{_NODES}/devices/*, /dev/iommu]"
    return f"; VFIO offers it as a character device, {there}: {advice}" if there else ""


def _in_use(directory: str, is_given: bool, root: Root) -> str | None:
    """Why VFIO cannot use a function of the group, or None.

    is_given: whether a container gets the function, which then must have a VFIO driver.
    """
    driver = root.link_name(directory + "/driver")
    if driver is None:
        return "has no driver" if is_given else None
    is_bridge = hexadecimal(directory + "/class", root).startswith(_BRIDGES)
    if "vfio" in driver or (not is_given and (is_bridge or driver in _HARMLESS)):
        return None
    return f"is bound to {driver}"


def _order(address: str) -> tuple[int, str]:
    """The order of PCI addresses: hexadecimal numbers of equal length, except that a domain may be longer."""
    return len(address), address
