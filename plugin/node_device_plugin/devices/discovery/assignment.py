"""Assigns each found device to one resource, because a device must be offered once on a node."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ...cdi.resolution import Resolution
from ...declaration import Device, Resource
from ...declaration.model import DISCOVERY_METHODS
from ...declaration.names import kinds_of
from .cdi import Cdi
from .method import Found, Node
from .spec_devices import listed, part_of, with_other_names

_ONE_GROUP = ": use discover.vfio, which makes one device of an IOMMU group"


class Discovered(NamedTuple):
    """The devices found for a resource, in natural order, and the devices left out, each with the reason."""

    devices: tuple[Device, ...]
    left_out: tuple[tuple[Device, str], ...]


class Candidate(NamedTuple):
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


class _Claim(NamedTuple):
    """owner: the device that has a path, as ``resource=id``. by: its resource and method; None if it is declared."""

    owner: str
    by: tuple[str, str] | None = None


class Claims:
    """The ids, host paths and CDI names that devices already have: declared devices first, then assigned ones.

    real: resolves links. taken: ids that belong to a resource, even if its devices are gone. specs: other programs' CDI
    specs, of which declared devices may use devices.
    """

    def __init__(
        self, resources: Sequence[Resource], real: Callable[[str], str], taken: Mapping[str, str], specs: Resolution
    ) -> None:
        self._taken = taken
        self._ids: dict[str, str] = {}
        self._nodes: dict[str, _Claim] = {}
        #: The nodes of whole devices of which a part is given. Other parts may have them, too.
        self._wholes: dict[str, _Claim] = {}
        self._cdi_names: dict[str, str] = {}
        by_cdi: dict[str, set[str]] = {}
        for resource, device in ((each, device) for each in resources for device in each.devices):
            owner = f"{resource.name}={device.id}"
            self._ids[device.id] = resource.name
            self._nodes.update((real(node.host_path), _Claim(owner)) for node in device.nodes)
            for name in device.cdi_devices:
                self._cdi_names[name] = owner
                given = specs.nodes(name)
                part = part_of([name.partition("=")[2]], given)
                self._wholes.update((real(path), _Claim(owner)) for path in part)
                by_cdi.setdefault(owner, set()).update(given - part)
        # A path that several declared devices use, such as a control node, belongs to none of them.
        shared = collections.Counter(path for paths in by_cdi.values() for path in paths)
        own = ((owner, path) for owner, paths in by_cdi.items() for path in paths if shared[path] == 1)
        self._nodes.update((real(path), _Claim(owner)) for owner, path in own)
        for kind in kinds_of(self._cdi_names):
            self._cdi_names.update(with_other_names(kind, listed(kind, specs), self._cdi_names))

    def refusal(self, candidate: Candidate, resource: str) -> str | None:
        """Why the candidate cannot become a device of the resource, or None."""
        device_id, by = candidate.device.id, (resource, candidate.method)
        owner = self._ids.get(device_id) or self._taken.get(device_id, resource)
        if device_id in self._ids or owner != resource:
            prefix = f"{resource.partition('/')[2]}-"
            fix = f"if the devices differ, set discover.id_prefix, e.g. {prefix}, or exclude one"
            return f"{owner} already has a device with this id: {fix}"
        for name in candidate.found.cdi_names:
            if name in self._cdi_names:
                return f"{name} is already a device of {self._cdi_names[name]}"
        paths = (*candidate.own, *candidate.found.part_of)
        return _of_another(self._nodes, paths, by) or _of_another(self._wholes, candidate.own, by)

    def add(self, candidate: Candidate, resource: str) -> None:
        """Note the candidate as a device of the resource."""
        claim = _Claim(f"{resource}={candidate.device.id}", (resource, candidate.method))
        self._ids[candidate.device.id] = resource
        self._cdi_names.update(dict.fromkeys(candidate.found.cdi_names, claim.owner))
        self._nodes.update(dict.fromkeys(candidate.own, claim))
        declared = {path for path in candidate.found.part_of if path in self._wholes and not self._wholes[path].by}
        self._wholes.update(dict.fromkeys(set(candidate.found.part_of) - declared, claim))


def _of_another(claims: Mapping[str, _Claim], paths: Iterable[str], by: tuple[str, str]) -> str | None:
    """That one of the paths is a node of another device, in words; None if there is none."""
    for path in paths:
        claim = claims.get(path)
        # Parts of a device that a CDI spec lists may have paths in common.
        if claim is not None and not (claim.by == by and by[1] == Cdi.key):
            hint = _ONE_GROUP if claim.by == by and path.startswith("/dev/vfio/") else ""
            return f"{path} is already a node of {claim.owner}{hint}"
    return None


def assigned(
    resources: Sequence[Resource],
    found: Mapping[str, Iterable[Candidate]],
    real: Callable[[str], str],
    taken: Mapping[str, str],
    specs: Resolution,
) -> dict[str, Discovered]:
    """Assign the candidates to their resources; an earlier resource gets what several resources find.

    found: by resource; a resource that is missing here is missing in the result. For the others see Claims.
    """
    claims, result = Claims(resources, real, taken, specs), {}
    for resource in resources:
        if resource.name not in found:
            continue
        devices: list[Candidate] = []
        left_out: list[tuple[Device, str]] = []
        #: The device and the host path behind each path in a container that gets several devices.
        inside: dict[str, tuple[str, str]] = {}
        # A node goes to the first method that finds it.
        for candidate in sorted(_in_order(found[resource.name]), key=lambda each: DISCOVERY_METHODS.index(each.method)):
            why = candidate.problem or claims.refusal(candidate, resource.name) or _path_conflict(candidate, inside)
            if why is None:
                claims.add(candidate, resource.name)
                if resource.container_limit != 1:
                    inside.update((node.path, (candidate.device.id, node.host_path)) for node in candidate.nodes)
                devices.append(candidate)
            else:
                left_out.append((candidate.device, why))
        devices.sort(key=lambda each: each.order)
        result[resource.name] = Discovered(tuple(each.device for each in devices), tuple(left_out))
    return result


def _path_conflict(candidate: Candidate, inside: Mapping[str, tuple[str, str]]) -> str | None:
    """That a container with both devices would get only one of them at a path; None if it gets both."""
    for node in candidate.nodes:
        owner, host_path = inside.get(node.path, ("", node.host_path))
        if host_path != node.host_path:
            return (
                f"{candidate.found.known_as[0]} matched, but {owner} already has its path {node.path} in a container: "
                "add another property to container_path, such as {name}, or set container_limit: 1"
            )
    return None


def _in_order(found: Iterable[Candidate]) -> list[Candidate]:
    """The candidates in natural order; candidates with an id that is already used come last."""
    by_id: dict[str, Candidate] = {}
    doubles: list[Candidate] = []
    # A device that cannot be offered takes no id from another one.
    for candidate in sorted(found, key=lambda each: each.problem is not None):
        first = by_id.setdefault(candidate.device.id, candidate)
        if first is not candidate:
            # Two paths get the same id if one has a '-' where the other has a '/'.
            problem = candidate.problem or f"{first.found.known_as[0]} already has this id"
            doubles.append(candidate._replace(problem=problem))
    return [*sorted(by_id.values(), key=lambda each: each.order), *doubles]
