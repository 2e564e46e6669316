"""Discovery: what a configuration finds on this node now, as devices like the declared ones.

Each DiscoveryMethod is a module (paths, usb, pci) that reads a Root; grouping makes devices of what they find. All of
it is plain code that reads the file system: not for the event loop.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...declaration import Device, Resource
from ...declaration.model import ContainerEdits, DeviceNode, Discovery
from ...declaration.names import MAX_DEVICE_ID
from ...declaration.patterns import compiled
from ..table import natural_order
from .found import Found, Node, device_id
from .grouping import grouped
from .method import DiscoveryMethod, IsOffered
from .paths import Paths
from .pci import Pci
from .root import Root
from .sysfs import numa_node_of
from .usb import Usb

__all__ = ["METHODS", "Discovered", "Known", "discover", "find", "methods_of", "with_discovered"]

#: Every method, in the order in which they find.
METHODS: Tuple[DiscoveryMethod, ...] = (Paths(), Usb(), Pci())


class Discovered(NamedTuple):
    """What was found of a resource: devices as people count, and what another device has already, with the reason."""

    devices: Tuple[Device, ...]
    left_out: Tuple[Tuple[Device, str], ...]


class _Made(NamedTuple):
    """A device, what it was made of, and its place among the others.

    own: the nodes on the host that no other device may have. problem: why nobody can be given it.
    """

    found: Found
    nodes: Tuple[Node, ...]
    device: Device
    order: List[Any]
    own: Tuple[str, ...]
    problem: Optional[str]


class Known:
    """What a look found, kept for the next one: thousands of devices that stay are not made anew."""

    def __init__(self) -> None:
        self._by_resource: Dict[str, Tuple[Resource, Dict[str, _Made]]] = {}

    def of(self, resource: Resource) -> Dict[str, _Made]:
        """By name; nothing where the resource is declared in another way now."""
        declared, made = self._by_resource.get(resource.name, (None, {}))
        return made if declared == resource else {}

    def keep(self, resource: Resource, made: Dict[str, _Made]) -> None:
        """For the next look."""
        self._by_resource[resource.name] = (resource, made)


#: Gives what is offered now, by the CDI specs that the plugin wrote: device id to its nodes on the host.
Offered = Callable[[], Mapping[str, FrozenSet[str]]]


def _nothing() -> Mapping[str, FrozenSet[str]]:
    return {}


def methods_of(discovery: Discovery) -> List[DiscoveryMethod]:
    """The methods that a resource uses."""
    return [method for method in METHODS if method.key in discovery.methods]


def find(
    resource: Resource, root: str = "/", known: Optional[Known] = None, offered: Offered = _nothing
) -> List[Device]:
    """The devices that ``resource.discover`` finds below ``root``, as people count; whoever else has them."""
    found = _find(resource, root, Known() if known is None else known, offered)
    return [made.device for made in found if made.problem is None]


def _find(resource: Resource, root: str, known: Known, offered: Offered) -> List[_Made]:
    discovery = resource.discover
    # A share's number needs room, too.
    room = MAX_DEVICE_ID - resource.share_length
    devices: Dict[str, _Made] = {}
    doubles: List[_Made] = []
    before, now = known.of(resource), {}
    inside = Root(root)
    excluded = [compiled(pattern) for pattern in discovery.exclude]

    def is_offered(name: str, nodes: Sequence[Node]) -> bool:
        return any(node.host_path in offered().get(device_id(name, room), ()) for node in nodes)

    for found in _found(discovery, inside, is_offered):
        if excluded and any(pattern.match(name) for name in found.known_as for pattern in excluded):
            continue
        nodes = grouped(found, discovery, inside)
        if nodes is not None:
            made = before.get(found.name)
            if made is None or made.found != found or made.nodes != nodes:
                device = _device(device_id(found.name, room), nodes, found, discovery)
                if resource.preference == "numa" and device.numa_node is None and nodes:
                    # Others are not asked: a NUMA node makes the kubelet align a pod's processors, too.
                    device = device._replace(numa_node=numa_node_of(nodes[0].host_path, inside))
                made = _Made(
                    found,
                    nodes,
                    device,
                    natural_order(device.id),
                    own=_own(found, nodes),
                    problem=_not_text(device),
                )
            now[found.name] = made
            first = devices.setdefault(made.device.id, made)
            if first is not made:
                # Two paths, of which one has a '-' where the other has a '/'.
                doubles.append(made._replace(problem="%s has this id already" % first.found.known_as[0]))
    known.keep(resource, now)
    return [*sorted(devices.values(), key=lambda made: made.order), *doubles]


def discover(
    resources: Sequence[Resource],
    root: str = "/",
    known: Optional[Known] = None,
    offered: Offered = _nothing,
    taken: Optional[Mapping[str, str]] = None,
) -> Dict[str, Discovered]:
    """What every resource finds that discovers, by its name.

    A device belongs to one resource alone: what is declared comes first, then the resource that stands further up.
    known: kept from look to look. offered: decides where a device could have either of two ids. taken: ids that belong
    to a resource since an earlier look, also if their devices are gone.
    """
    if not any(resource.discover.methods for resource in resources):
        return {}
    known = Known() if known is None else known
    # Read once, and only if a method asks.
    offered = functools.lru_cache(maxsize=None)(offered)
    taken = taken or {}
    inside = Root(root)
    ids = {device.id: resource.name for resource in resources for device in resource.devices}
    nodes = {
        inside.resolve(node.host_path) or node.host_path: "%s=%s" % (resource.name, device.id)
        for resource in resources
        for device in resource.devices
        for node in device.nodes
    }
    result = {}
    for resource in resources:
        if not resource.discover.methods:
            continue
        mine: List[_Made] = []
        left_out: List[Tuple[Device, str]] = []
        for made in _find(resource, root, known, offered):
            device = made.device
            owner = ids.get(device.id) or taken.get(device.id, resource.name)
            used = next((path for path in made.own if path in nodes), None)
            if made.problem is not None:
                left_out.append((device, made.problem))
            elif device.id in ids or owner != resource.name:
                left_out.append((device, "%s has a device of this id" % owner))
            elif used is not None:
                left_out.append((device, "%s is a node of %s" % (used, nodes[used])))
            else:
                mine.append(made)
        for made in mine:
            ids[made.device.id] = resource.name
            nodes.update(dict.fromkeys(made.own, "%s=%s" % (resource.name, made.device.id)))
        result[resource.name] = Discovered(tuple(made.device for made in mine), tuple(left_out))
    return result


def with_discovered(resource: Resource, devices: Sequence[Device]) -> Resource:
    """The resource with the devices that were found beside the declared ones."""
    return resource._replace(devices=(*resource.devices, *devices))


def _found(discovery: Discovery, root: Root, is_offered: IsOffered) -> Iterator[Found]:
    for method in methods_of(discovery):
        yield from method.find(discovery, root, is_offered)


def _own(found: Found, nodes: Sequence[Node]) -> Tuple[str, ...]:
    """A path's node and not those that go with it, of a device on a bus all that its drivers made and it gives.

    What every device is given, such as /dev/vfio/vfio, is none's own, wherever it stands in the list.
    """
    first = next((node.host_path for node in nodes if not node.is_common), None)
    made = {node.host_path for node in found.own} if found.on_bus else set()
    return tuple(
        node.host_path for node in nodes if node.host_path == first or (node.host_path in made and not node.is_common)
    )


def _not_text(device: Device) -> Optional[str]:
    """A file's name is any bytes; CDI specs (JSON) and the kubelet's API (protobuf) take UTF-8 alone."""
    texts = [*(path for node in device.nodes for path in (node.path, node.host_path)), *device.properties.values()]
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return "%s is not UTF-8, which CDI asks for" % ascii(text)
    return None


def _device(device_id: str, nodes: Sequence[Node], found: Found, discovery: Discovery) -> Device:
    return Device(
        id=device_id,
        nodes=tuple(
            DeviceNode(
                path=node.path,
                host_path=node.host_path,
                permissions=discovery.permissions,
                uid=discovery.uid,
                gid=discovery.gid,
                mode=discovery.mode,
            )
            for node in nodes
        ),
        container_edits=ContainerEdits(),
        properties=found.properties,
        required=False,
        numa_node=found.numa_node,
        attributes=found.attributes,
    )
