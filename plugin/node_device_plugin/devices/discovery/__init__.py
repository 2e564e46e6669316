"""Discovery finds the devices of a configuration on this node and gives them the form of declared devices.

Each DiscoveryMethod in METHODS is a module that reads a Root; grouping turns the findings into devices. All of these
modules block on the file system, so they must not run in the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Callable

from ...cdi.links import Links, node_paths
from ...cdi.reader import SpecReader
from ...cdi.resolution import NO_SPECS
from ...declaration import Device, Resource
from ...declaration.device_plugin_api import longest_device_id
from ...declaration.model import ContainerEdits, DeviceNode, Discovery
from ...declaration.names import device_id, kinds_of
from ...declaration.patterns import compiled
from ...support.bounded_calls import Key, NoAnswer, in_thread
from ...support.directory_names import by_precedence
from ..table import natural_order
from .assignment import Candidate, assigned
from .assignment import Discovered as Discovered
from .cdi import Cdi
from .grouping import grouped
from .method import DiscoveryMethod, Found, Incomplete, Node
from .paths import Paths
from .pci import Pci
from .root import Root
from .sysfs import numa_node_of
from .udev import Udev
from .usb import Usb
from .vfio import Vfio

#: Every method, in the order of their findings.
METHODS: tuple[DiscoveryMethod, ...] = (Paths(), Usb(), Pci(), Vfio(), Udev(), Cdi())

#: A slow method that was finished before may take this many times as long again before it counts as hanging.
_PATIENCE = 4.0

#: Gives the devices offered in the CDI specs that the plugin wrote: device id to its nodes on the host.
Offered = Callable[[], Mapping[str, frozenset[str]]]


def methods_of(discovery: Discovery) -> list[DiscoveryMethod]:
    """The methods that a resource uses."""
    return [method for method in METHODS if method.key in discovery.methods]


class _Search:
    """A method's search for the devices of a resource. It is repeated, and may take longer than a scan waits.

    known: the findings that count; None before the first. is_slow: whether it runs although a scan no longer waits for
    it. is_behind: whether it began before that scan. started, seconds: when the last search began (monotonic seconds),
    and how long the last one took that ended.
    """

    def __init__(self, resource: Resource, method: DiscoveryMethod) -> None:
        self.resource, self._method = resource, method
        self.key = Key(resource.name, method.key)
        self.known: list[Candidate] | None = None
        self.is_slow = self.is_behind = False
        self.started = self.seconds = 0.0

    def run(self, root: Root, offered: Offered) -> list[Candidate]:
        """Search now, before conflicts are resolved. Unchanged candidates are used again."""
        self.started = time.monotonic()
        known = {each.found.name: each for each in self.known or ()}
        of_cdi = {each.found.cdi_name: name for name, each in known.items() if each.found.cdi_name}
        found = [_named(each, self.resource, of_cdi, offered) for each in self._find(root)]
        candidates = [self._candidate(each, known.get(each.name), root) for each in found]
        self.seconds = time.monotonic() - self.started
        return candidates

    def _find(self, root: Root) -> Iterator[Found]:
        excluded = [compiled(pattern) for pattern in self.resource.discover.exclude]
        for found in self._method.find(self.resource.discover, root):
            if not any(pattern.match(name) for pattern in excluded for name in found.known_as):
                yield found

    def _candidate(self, found: Found, known: Candidate | None, root: Root) -> Candidate:
        discovery = self.resource.discover
        nodes, lack = ((), "") if found.problem else grouped(found, discovery, root)
        if not (nodes or lack or found.problem or found.cdi_name or self.resource.gives_anything):
            lack = found.without("device node that discover.nodes selects" if found.own else "device node")
        if lack:
            found = found._replace(problem=lack)
        if known is not None and (known.found, known.nodes) == (found, nodes):
            return known
        device = _device(_id(found.name, self.resource), nodes, found, discovery)
        if self.resource.preference == "numa" and device.numa_node is None and nodes:
            # Only for "numa", because a NUMA node also makes the kubelet align a pod's CPUs.
            device = device._replace(numa_node=numa_node_of(nodes[0].host_path, root))
        # The log and the status are UTF-8.
        printable = (found.problem or "").encode("utf-8", "backslashreplace").decode()
        problem = Incomplete(printable) if printable else _not_text(device)
        own = _own(found, nodes)
        return Candidate(self._method.key, found, nodes, device, natural_order(device.id), own, problem)


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
        #: By resource and method.
        self._searches: dict[Key, _Search] = {}
        #: Resource to the reason why a method did not answer for it in the last scan.
        self.late: Mapping[str, str] = {}
        #: Other programs' CDI specs, as last read.
        self.specs = NO_SPECS
        self._reader = SpecReader(())
        #: The kinds that the former and the present resources need: after a reload, both are compared.
        self._spec_kinds: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()

    async def discover(
        self,
        resources: Sequence[Resource],
        offered: Offered,
        known: Mapping[str, Resource] = MappingProxyType({}),
        spec_dirs: Sequence[str] = (),
    ) -> dict[str, Discovered]:
        """The devices that each discovering resource finds, by resource name.

        A resource is missing if a method hangs for it and has no earlier findings. A device belongs to one resource:
        declared devices come first, then resources in order. resources: as declared. offered: decides between two ids
        of a device. known: each resource with its earlier devices, to which their ids belong even if they are gone.
        spec_dirs: where the runtime reads CDI specs.
        """
        await self._links.look_at(node_paths(resources))
        # Our specs are read once, and only if a device has two possible ids.
        offered = functools.lru_cache(maxsize=None)(offered)
        unread = await self._read_specs(resources, spec_dirs)
        root = Root(self._root, specs=self.specs)
        former, self._searches = self._searches, {}
        for resource in resources:
            for method in methods_of(resource.discover):
                new = _Search(resource, method)
                search = former.get(new.key, new)
                self._searches[new.key] = search if search.resource == resource else new
        began = time.monotonic()
        calls = [(key, functools.partial(search.run, root, offered)) for key, search in self._searches.items()]
        answers = await self._links.calls.run(calls, waits=self._on_news is None)
        late: dict[str, str] = {}
        found: dict[str, list[Candidate]] = {}
        unknown = set()
        for key, search in self._searches.items():
            why = self._why_late(search, answers[key], began)
            if why is not None:
                # What one resource finds must not stop the discovery of others.
                late[key.group] = f"discovery by {key.name} {why}"
            if search.known is None:
                unknown.add(key.group)
            found.setdefault(key.group, []).extend(search.known or ())
        if unread is not None:
            by_cdi = {resource.name for resource in resources if resource.discover.cdi}
            late.update(dict.fromkeys(by_cdi, unread))
            if not _kinds(resources) <= self.specs.kinds:
                # Without the specs, devices that are declared by CDI names could be offered a second time.
                unknown |= by_cdi
        self.late = late
        return await in_thread(
            assigned,
            [known.get(each.name, each) if each.name in unknown else each for each in resources],
            {name: each for name, each in found.items() if name not in unknown},
            self._links.real,
            {device.id: name for name, each in known.items() for device in each.devices},
            self.specs,
        )

    def _why_late(self, search: _Search, answer: list[Candidate] | Exception, began: float) -> str | None:
        """Why the former findings of a search count, in words; None if they are up to date, or as slow as usual."""
        if not isinstance(answer, Exception):
            search.known, search.is_slow = answer, False
            return None
        if not isinstance(answer, NoAnswer):
            return f"failed: {answer!r}"
        if answer.later is None:
            return str(answer)
        search.is_slow, search.is_behind = True, search.started < began
        answer.later.add_done_callback(functools.partial(self._ended, search))
        is_usual = search.known is not None and search.seconds >= self._links.calls.limit
        return None if is_usual and time.monotonic() - search.started <= _PATIENCE * search.seconds else str(answer)

    def _ended(self, search: _Search, later: asyncio.Future[list[Candidate] | Exception]) -> None:
        """Take the findings of a slow search, and ask for another scan if that may find others.

        It may if the findings changed, if the resource is late, or if the search began before the last scan.
        """
        found = later.result()
        if not search.is_slow or self._searches.get(search.key) is not search or isinstance(found, Exception):
            return
        is_news = search.is_behind or search.key.group in self.late or search.known != found
        search.known, search.is_slow = found, False
        if is_news and self._on_news is not None:
            self._on_news()

    async def _read_specs(self, resources: Sequence[Resource], spec_dirs: Sequence[str]) -> str | None:
        """Read other programs' specs if a resource needs them. Returns why they stay as last read, or None."""
        kinds = _kinds(resources)
        if not kinds:
            return None
        if kinds != self._spec_kinds[1]:
            self._spec_kinds = self._spec_kinds[1], kinds
        inside = Root(self._root)
        directories = tuple(by_precedence(map(inside.on_host, spec_dirs)))
        if self._reader.directories != directories:
            self._reader = SpecReader(directories, inside.on_host("/sys"))
        key = Key("", "CDI specs that resources need")
        read = functools.partial(self._reader.read, frozenset().union(*self._spec_kinds))
        answer = (await self._links.calls.run([(key, read)]))[key]
        if isinstance(answer, NoAnswer):
            if answer.later is not None and (on_news := self._on_news) is not None:
                answer.later.add_done_callback(lambda _: on_news())
            return f"discovery by {Cdi.key} {answer}"
        if isinstance(answer, Exception):
            return f"discovery by {Cdi.key} failed: {answer!r}"
        self.specs = answer
        return None


def _kinds(resources: Sequence[Resource]) -> frozenset[str]:
    """The kinds of other programs' specs that resources discover or name."""
    named = kinds_of(name for resource in resources for device in resource.devices for name in device.cdi_devices)
    return named.union(resource.discover.cdi.kind for resource in resources if resource.discover.cdi)


def _named(found: Found, resource: Resource, former: Mapping[str, str], offered: Offered) -> Found:
    """The finding with the name that it already has. former: names of earlier findings by CDI name."""
    if found.problem and found.cdi_name in former:
        # A CDI name that does not resolve has no PCI address for its id, but its former id finds the device.
        return found._replace(name=former[found.cdi_name])
    # The device keeps its offered name: another device with that name would be given to a second pod.
    for name in (found.name, *found.other_names) if found.other_names else ():
        given = offered().get(_id(name, resource), ())
        if any(node.host_path in given for node in found.own):
            return found._replace(name=name)
    return found


def _id(name: str, resource: Resource) -> str:
    # The id must leave room for a share's number.
    return device_id(resource.discover.id_prefix + name, longest_device_id(resource))


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
