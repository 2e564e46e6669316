"""Discovery finds the devices of a configuration on this node and gives them the form of declared devices.

Each DiscoveryMethod in METHODS is a module that reads a Root; grouping turns the findings into devices. All of these
modules block on the file system, so they must not run in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Callable, NamedTuple

from ...cdi.kinds import kinds_of
from ...cdi.links import Links, node_paths
from ...declaration import Device, Resource
from ...declaration.device_plugin_api import longest_device_id
from ...declaration.model import DISCOVERY_METHODS, ContainerEdits, DeviceNode, Discovery
from ...declaration.names import device_id
from ...declaration.patterns import compiled
from ...support.bounded_calls import Key, NoAnswer, in_thread
from ..table import natural_order
from .cdi import NOTHING_RESERVED, Cdi, Reserved
from .found import Found, Incomplete, Node
from .grouping import grouped
from .method import DiscoveryMethod
from .paths import Paths
from .pci import Pci
from .root import Root
from .sysfs import numa_node_of
from .udev import Udev
from .usb import Usb
from .vfio import Vfio

#: Every method, in the order of their findings.
CDI = Cdi()
METHODS: tuple[DiscoveryMethod, ...] = (Paths(), Usb(), Pci(), Vfio(), Udev(), CDI)

#: A slow method that was finished before may take this many times as long again before it counts as hanging.
_PATIENCE = 4.0
_ONE_GROUP = ": use discover.vfio, which makes one device of an IOMMU group"


class Discovered(NamedTuple):
    """The devices found for a resource, in natural order, and the devices left out, each with the reason."""

    devices: tuple[Device, ...]
    left_out: tuple[tuple[Device, str], ...]


class _Made(NamedTuple):
    """A device, the method, finding and nodes it was made of, and its sort key.

    own: the host paths of nodes that no other device may have. problem: why the device cannot be given to a container.
    """

    method: str
    found: Found
    nodes: tuple[Node, ...]
    device: Device
    order: list[Any]
    own: tuple[str, ...]
    problem: str | None


#: Gives the devices offered in the CDI specs that the plugin wrote: device id to its nodes on the host.
Offered = Callable[[], Mapping[str, frozenset[str]]]


def methods_of(discovery: Discovery) -> list[DiscoveryMethod]:
    """The methods that a resource uses."""
    return [method for method in METHODS if method.key in discovery.methods]


class _Search:
    """A method's search for the devices of a resource, which may take longer than a scan waits.

    on_end: called in the event loop when a search ends for which no scan waited. found: the findings; None until the
    search has ended. started, seconds: when it began (monotonic seconds), and how long it took.
    """

    def __init__(self, resource: Resource, find: Callable[[], list[_Made]], on_end: Callable[[_Search], None]) -> None:
        self.resource = resource
        self.found: list[_Made] | None = None
        self.started, self.seconds = time.monotonic(), 0.0
        self._find, self._on_end = find, on_end
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> list[_Made]:
        self.started = time.monotonic()
        found = self._find()
        self.seconds = time.monotonic() - self.started
        self.found = found
        # If the event loop is closed, nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_end, self)
        return found


class Discoverer:
    """Discovers repeatedly; if a method hangs for a resource, the resource keeps its last findings.

    links: resolves links in the paths of device nodes. Its ``calls`` also runs the discovery methods. on_news: called
    when a slow method has finished in the background and found other devices, which the next ``discover`` returns;
    None to wait for slow methods.
    """

    def __init__(self, links: Links, root: str = "/", on_news: Callable[[], None] | None = None) -> None:
        self._links = links
        self._root = root
        self._on_news = on_news
        #: The searches for which a scan did not wait to the end.
        self._slow: dict[Key, _Search] = {}
        #: How many seconds each search took.
        self._seconds: dict[Key, float] = {}
        #: By resource and method: the declaration used, and the devices found.
        self._last: dict[Key, tuple[Resource, list[_Made]]] = {}
        #: Resource to the reason why a method did not answer for it in the last scan.
        self.late: Mapping[str, str] = {}
        #: The declared devices that CDI names give, and what they use, as last read.
        self._reserved: tuple[Mapping[str, Device], Reserved] | None = None

    async def discover(
        self,
        resources: Sequence[Resource],
        offered: Offered,
        taken: Mapping[str, str] = MappingProxyType({}),
        known: Mapping[str, Resource] = MappingProxyType({}),
        spec_dirs: Sequence[str] = (),
    ) -> dict[str, Discovered]:
        """The devices that each discovering resource finds, by resource name.

        A resource is missing if a method hangs for it and has no earlier findings. A device belongs to one resource:
        declared devices come first, then resources in order. resources: as declared. offered: decides between two ids
        of a device. taken: ids that belong to a resource, even if gone. known: each resource with its earlier devices.
        spec_dirs: where the runtime reads CDI specs.
        """
        await self._links.look_at(node_paths(resources))
        # The specs are read once, and only if a device has two possible ids.
        offered = functools.lru_cache(maxsize=None)(offered)
        asked = {
            Key(resource.name, method.key): (resource, method)
            for resource in resources
            for method in methods_of(resource.discover)
        }
        root = Root(self._root, spec_dirs)
        reserved = await self._reserve(resources, root)
        self._last = {key: last for key, last in self._last.items() if key in asked}
        self._take_slow({key: resource for key, (resource, _method) in asked.items()})
        searches = {
            key: self._slow.get(key)
            or _Search(
                resource,
                functools.partial(_find, resource, method, root, self._before(key, resource), offered),
                functools.partial(self._ended, key),
            )
            for key, (resource, method) in asked.items()
        }
        answers = await self._links.calls.run(list(searches.items()), waits=self._on_news is None)
        late: dict[str, str] = {}
        found: dict[str, list[_Made]] = {}
        unknown = set()
        for key, (resource, method) in asked.items():
            answer = answers[key]
            if isinstance(answer, NoAnswer):
                self._slow[key] = searches[key]
                if self._is_usual(key, searches[key]):
                    answer = self._before(key, resource)
            if isinstance(answer, Exception):
                # What one resource finds must not stop the discovery of others.
                why = str(answer) if isinstance(answer, NoAnswer) else f"failed: {answer!r}"
                late[resource.name] = f"discovery by {method.key} {why}"
                if self._last.get(key, (None,))[0] != resource:
                    unknown.add(resource.name)
            else:
                self._last[key] = (resource, answer)
                if answer is searches[key].found:
                    self._slow.pop(key, None)
                    self._seconds[key] = searches[key].seconds
            found.setdefault(resource.name, []).extend(self._before(key, resource))
        if reserved is None:
            # Without the specs, devices that are declared by CDI names could be offered a second time.
            for resource in resources:
                if resource.discover.cdi:
                    unknown.add(resource.name)
                    late.setdefault(resource.name, "cannot read which CDI devices the configuration names")
        self.late = late
        return await in_thread(
            _assigned,
            [known.get(each.name, each) if each.name in unknown else each for each in resources],
            {name: _in_order(made) for name, made in found.items() if name not in unknown},
            self._links.real,
            taken,
            reserved or NOTHING_RESERVED,
        )

    async def _reserve(self, resources: Sequence[Resource], root: Root) -> Reserved | None:
        """What declared devices use from other programs' CDI specs, as last read; None if that is unknown."""
        declared = {
            f"{resource.name}={device.id}": device
            for resource in resources
            for device in resource.devices
            if device.cdi_devices
        }
        discovered = {resource.discover.cdi.kind for resource in resources if resource.discover.cdi}
        CDI.keep_only(discovered.union(kinds_of(name for each in declared.values() for name in each.cdi_devices)))
        if not declared:
            return NOTHING_RESERVED
        key = Key("", "CDI devices that the configuration names")
        answer = (await self._links.calls.run([(key, functools.partial(CDI.reserved, declared, root))]))[key]
        if not isinstance(answer, Exception):
            self._reserved = declared, answer
        return self._reserved[1] if self._reserved and self._reserved[0] == declared else None

    def _take_slow(self, asked: Mapping[Key, Resource]) -> None:
        """Take the findings of searches that have ended, and forget the searches of other declarations."""
        self._slow = {key: search for key, search in self._slow.items() if asked.get(key) == search.resource}
        for key, search in list(self._slow.items()):
            if search.found is not None:
                self._last[key] = (search.resource, search.found)
                self._seconds[key] = search.seconds
                # Search again in the same scan, because something may have changed after the search began.
                del self._slow[key]

    def _is_usual(self, key: Key, search: _Search) -> bool:
        """Whether a search usually is slow and takes no longer than usual, so that its former findings count."""
        usual = self._seconds.get(key, 0.0)
        if usual < self._links.calls.limit or self._last.get(key, (None,))[0] != search.resource:
            return False
        return time.monotonic() - search.started <= _PATIENCE * usual

    def _ended(self, key: Key, search: _Search) -> None:
        """Ask for another scan if a slow search found other devices, or if its resource was late."""
        if self._on_news is None or self._slow.get(key) is not search:
            return
        if key.group in self.late or self._last.get(key) != (search.resource, search.found):
            self._on_news()

    def _before(self, key: Key, resource: Resource) -> list[_Made]:
        declared, made = self._last.get(key, (None, []))
        return made if declared == resource else []


def _find(
    resource: Resource, method: DiscoveryMethod, inside: Root, known: Sequence[_Made], offered: Offered
) -> list[_Made]:
    """What a method finds, before conflicts are resolved. known: earlier findings; unchanged devices are reused."""
    discovery = resource.discover
    room = longest_device_id(resource)
    before = {made.found.name: made for made in known}
    former = {made.found.cdi_name: made.found.name for made in known if made.found.cdi_name}
    excluded = [compiled(pattern) for pattern in discovery.exclude]
    result = []

    def id_of(name: str) -> str:
        return device_id(discovery.id_prefix + name, room)

    def is_offered(found: Found, name: str) -> bool:
        return any(node.host_path in offered().get(id_of(name), ()) for node in found.own)

    for found in method.find(discovery, inside):
        if found.other_names:
            # The device keeps its offered name: another device with that name would be given to a second pod.
            names = (found.name, *found.other_names)
            found = found._replace(name=next((name for name in names if is_offered(found, name)), found.name))
        if found.problem and found.cdi_name in former:
            # A CDI name that does not resolve has no PCI address for its id, but its former id finds the device.
            found = found._replace(name=former[found.cdi_name])
        if excluded and any(pattern.match(name) for name in found.known_as for pattern in excluded):
            continue
        nodes, lack = ((), "") if found.problem else grouped(found, discovery, inside)
        if not (nodes or lack or found.problem or found.cdi_name or resource.gives_anything):
            lack = found.without("device node that discover.nodes selects" if found.own else "device node")
        if lack:
            found = found._replace(problem=lack)
        made = before.get(found.name)
        if made is None or made.found != found or made.nodes != nodes:
            device = _device(id_of(found.name), nodes, found, discovery)
            if resource.preference == "numa" and device.numa_node is None and nodes:
                # Only for "numa", because a NUMA node also makes the kubelet align a pod's CPUs.
                device = device._replace(numa_node=numa_node_of(nodes[0].host_path, inside))
            problem = Incomplete(_printable(found.problem)) if found.problem else _not_text(device)
            own = _own(found, nodes)
            made = _Made(method.key, found, nodes, device, natural_order(device.id), own, problem)
        result.append(made)
    return result


def _in_order(found: Iterable[_Made]) -> list[_Made]:
    """The devices in natural order; devices with an id that is already used come last."""
    devices: dict[str, _Made] = {}
    doubles: list[_Made] = []
    # A device that cannot be offered takes no id from another one.
    for made in sorted(found, key=lambda made: made.problem is not None):
        first = devices.setdefault(made.device.id, made)
        if first is not made:
            # Two paths get the same id if one has a '-' where the other has a '/'.
            problem = made.problem or f"{first.found.known_as[0]} already has this id"
            doubles.append(made._replace(problem=problem))
    return [*sorted(devices.values(), key=lambda made: made.order), *doubles]


def _assigned(
    resources: Sequence[Resource],
    found: Mapping[str, Sequence[_Made]],
    real: Callable[[str], str],
    taken: Mapping[str, str],
    reserved: Reserved,
) -> dict[str, Discovered]:
    """Assign each found device to one resource. taken: ids that belong to a resource, even if its devices are gone."""
    ids = {device.id: resource.name for resource in resources for device in resource.devices}
    nodes = _Claims(
        {
            real(node.host_path): f"{resource.name}={device.id}"
            for resource in resources
            for device in resource.devices
            for node in device.nodes
        }
    )
    nodes.declared.update({real(path): owner for path, owner in reserved.nodes.items()})
    of_parts = _Claims({real(path): owner for path, owner in reserved.of_parts.items()})
    cdi_names = dict(reserved.names)
    result = {}
    for resource in resources:
        if resource.name not in found:
            continue
        mine: list[_Made] = []
        left_out: list[tuple[Device, str]] = []
        # A node goes to the first method that finds it.
        for made in sorted(found[resource.name], key=lambda made: DISCOVERY_METHODS.index(made.method)):
            device, by = made.device, (resource.name, made.method)
            owner = ids.get(device.id) or taken.get(device.id, resource.name)
            used = nodes.of_others((*made.own, *made.found.part_of), by) or of_parts.of_others(made.own, by)
            named = next((name for name in made.found.cdi_names if name in cdi_names), None)
            if made.problem is not None:
                left_out.append((device, made.problem))
            elif device.id in ids or owner != resource.name:
                prefix = f"{resource.name.partition('/')[2]}-"
                fix = f"if the devices differ, set discover.id_prefix, e.g. {prefix}, or exclude one"
                left_out.append((device, f"{owner} already has a device with this id: {fix}"))
            elif named is not None:
                left_out.append((device, f"{named} is already a device of {cdi_names[named]}"))
            elif used is not None:
                left_out.append((device, used))
            else:
                name = f"{resource.name}={device.id}"
                mine.append(made)
                ids[device.id] = resource.name
                nodes.add(made.own, by, name)
                of_parts.add(made.found.part_of, by, name)
                cdi_names.update(dict.fromkeys(made.found.cdi_names, name))
        mine.sort(key=lambda made: made.order)
        result[resource.name] = Discovered(tuple(made.device for made in mine), tuple(left_out))
    return result


class _Claims:
    """The devices that use host paths. declared: the path with the device's name.

    Parts of a device that a CDI spec lists may have paths in common.
    """

    def __init__(self, declared: dict[str, str]) -> None:
        self.declared = declared
        self._found: dict[str, tuple[tuple[str, str], str]] = {}

    def add(self, paths: Iterable[str], by: tuple[str, str], name: str) -> None:
        """Note the paths of a device. by: the resource, and the method that found the device."""
        self._found.update(dict.fromkeys(paths, (by, name)))

    def of_others(self, paths: Iterable[str], by: tuple[str, str]) -> str | None:
        """That one of the paths is a node of another device, in words; None if there is none. by: see add."""
        for path in paths:
            finder, name = self._found.get(path, (None, ""))
            are_parts = finder == by and by[1] == CDI.key
            if path in self.declared or (finder is not None and not are_parts):
                hint = _ONE_GROUP if finder == by and path.startswith("/dev/vfio/") else ""
                return f"{path} is already a node of {self.declared.get(path, name)}{hint}"
        return None


def with_discovered(resource: Resource, devices: Sequence[Device]) -> Resource:
    """The resource with its declared devices and the found ones."""
    return resource._replace(devices=(*resource.devices, *devices))


def _own(found: Found, nodes: Sequence[Node]) -> tuple[str, ...]:
    """The host paths that only this device may have: its first node and, on a bus, every own node that it gives.

    For a device of another program's CDI spec, also the paths that only this device has there.

    A node given to every device, such as /dev/vfio/vfio, belongs to no device, wherever it stands in the list.
    """
    first = next((node.host_path for node in nodes if not node.is_common), None)
    made = {node.host_path for node in found.own} if found.on_bus else set()
    return found.cdi_paths + tuple(
        node.host_path for node in nodes if node.host_path == first or (node.host_path in made and not node.is_common)
    )


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _not_text(device: Device) -> str | None:
    """Why a device cannot be written as text, or None: CDI specs (JSON) and the kubelet's API (protobuf) need UTF-8."""
    texts = [*(path for node in device.nodes for path in (node.path, node.host_path)), *device.properties.values()]
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return f"{text!a} is not UTF-8, which CDI requires"
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
                placeholder=node.placeholder,
            )
            for node in nodes
        ),
        container_edits=ContainerEdits(),
        properties=found.properties,
        required=False,
        numa_node=found.numa_node,
        attributes=found.attributes,
        cdi_devices=(found.cdi_name,) if found.cdi_name else (),
        identity=found.identity,
    )
