"""Plans what a ResourceClaim gets of this driver's devices. Reads and writes nothing.

Fields of a claim: k8s.io/api/resource/v1, ResourceClaim. What a kubelet expects: k8s.io/kubelet, pkg/apis/dra/v1.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, TypeVar

from ...declaration import Device, Resource
from ...declaration.device_plugin_api import devices_behind, kubelet_ids
from ...declaration.env import allocate_env
from ...devices.reason import told
from . import UID

T = TypeVar("T")

#: The types of the parts of a claim, for messages.
_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
#: The kind of the CDI devices that exist only for one claim.
CDI_KIND = "nodedevices.kubernetes/claim"
#: Stands for all requests of a claim. No request has such a name, so no container names it: the kubelet gives what has
#: this name to the containers that use a whole claim (cdiDevicesAsList in pkg/kubelet/cm/dra of Kubernetes).
WHOLE = "ALL"
#: Marks the claims that schedulers make for the limits of a pod's containers, with requests for each container.
_OF_LIMITS = "resource.kubernetes.io/extended-resource-claim"


class Refused(Exception):
    """A claim cannot be prepared; the message names the claim and the reason."""


class ClaimId(NamedTuple):
    """A claim as the kubelet names it."""

    uid: str
    namespace: str
    name: str

    @property
    def is_valid(self) -> bool:
        """Whether the uid can be a part of the names of files and CDI devices."""
        return bool(UID.fullmatch(self.uid))

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


class PreparedDevice(NamedTuple):
    """A device, or a share of one, that a claim has. request: without a subrequest. pool, name: in the ResourceSlices.

    device_id: the device's own id, or that of its share (device_plugin_api.kubelet_ids). cdi_names: as answered to the
    kubelet. paths: of the host, of the device's nodes and bind mounts. is_admin: whether other claims may have the
    device, too.
    """

    request: str
    pool: str
    name: str
    resource: str
    device_id: str
    cdi_names: tuple[str, ...]
    paths: tuple[str, ...]
    is_admin: bool

    @property
    def key(self) -> tuple[str, str, str, bool]:
        """What the scheduler has allocated."""
        return self.request, self.pool, self.name, self.is_admin

    @property
    def is_share(self) -> bool:
        """Whether other claims may have other shares of the device."""
        return len(devices_behind(self.device_id)) > 1


class PreparedClaim(NamedTuple):
    """A claim and all that it has. driver: which prepared it.

    env: the variables of each request that sets any. Those of WHOLE replace them if a container has all requests.
    """

    id: ClaimId
    driver: str
    devices: tuple[PreparedDevice, ...]
    env: Mapping[str, Mapping[str, str]]

    def spec_devices(self) -> dict[str, dict[str, Any]]:
        """The CDI devices that exist only for this claim, by name, each with its edits."""
        return {
            spec_device(self.id, request): {"env": [f"{name}={value}" for name, value in variables.items()]}
            for request, variables in self.env.items()
        }


class Held(Refused):
    """A claim cannot be prepared, because ``holder`` still has one of its devices."""

    def __init__(self, where: str, holder: PreparedClaim) -> None:
        super().__init__(f"{where}: is still prepared for {holder.id}")
        self.where, self.holder = where, holder


class Offered(NamedTuple):
    """A device of this driver, or a share of one. place: of the device in its resource. listed_id: see PreparedDevice.

    reason: why no container can get it now; None if one can.
    """

    resource: Resource
    device: Device
    place: int
    listed_id: str
    reason: str | None


#: Finds a device by its pool and its name there; None if this node has no such device.
Find = Callable[[str, str], "Offered | None"]


class _Given(NamedTuple):
    request: str
    pool: str
    name: str
    is_admin: bool
    offered: Offered


def plan(
    asked: ClaimId,
    claim: Mapping[str, Any] | None,
    driver: str,
    find: Find,
    others: Collection[PreparedClaim],
    real: Callable[[str], str],
) -> PreparedClaim:
    """What a claim that is not prepared gets. Raises Refused, and Held.

    claim: the object from the API server; None if it does not exist. driver: our name. others: the prepared claims.
    real: resolves the links in a host path.
    """
    given = []
    for result in _results(asked, claim, driver):
        request, pool, name, is_admin = _key(result)
        where = f"{asked}, request {request}, device {name} of pool {pool}"
        offered = find(pool, name)
        if offered is None:
            raise Refused(f"{where}: this node offers no such device: delete the pod, so that it gets another device")
        where += f" ({offered.resource.name}={offered.listed_id})"
        if offered.reason is not None:
            raise Refused(f"{where}: {told(offered.reason)}")
        holder = None if is_admin else _holder(asked, offered.resource.name, _keeps_out(offered), others)
        if holder is not None:
            raise Held(where, holder)
        given.append(_Given(request, pool, name, is_admin, offered))
    annotations = _part(asked, (claim or {})["metadata"], "metadata", "annotations", dict, {})
    env = _env(given, annotations.get(_OF_LIMITS) == "true")
    return PreparedClaim(asked, driver, _devices(asked, given, env, real), env)


def again(claim: Mapping[str, Any] | None, prepared: PreparedClaim, driver: str) -> PreparedClaim:
    """What a prepared claim gets: the same as before, because kubelets up to 1.36 append to what they know.

    Raises Refused if the claim has other devices by now.
    """
    if {_key(each) for each in _results(prepared.id, claim, driver)} != {each.key for each in prepared.devices}:
        raise Refused(
            f"{prepared.id}: is prepared with other devices than are allocated now: delete its pods, so that the "
            "kubelet releases the devices"
        )
    return prepared


def _results(asked: ClaimId, claim: Mapping[str, Any] | None, driver: str) -> list[Mapping[str, Any]]:
    """What is allocated of this driver's devices. Raises Refused."""
    if claim is None:
        raise Refused(f"{asked}: does not exist in the API server")
    uid = _part(asked, _part(asked, claim, "", "metadata", dict), "metadata", "uid", str)
    if uid != asked.uid:
        raise Refused(f"{asked}: has the uid {uid} in the API server, but the kubelet asks for {asked.uid}")
    allocation = _part(asked, _part(asked, claim, "", "status", dict, {}), "status", "allocation", dict, {})
    if not allocation:
        raise Refused(f"{asked}: is not allocated")
    where = "status.allocation.devices"
    devices = _part(asked, allocation, "status.allocation", "devices", dict, {})
    results = []
    for path, each in _items(asked, devices, where, "results"):
        for key in ("driver", "request", "pool", "device"):
            _part(asked, each, path, key, str)
        _part(asked, each, path, "adminAccess", bool, False)
        if each["driver"] == driver:
            results.append(each)
    _refuse_configuration(asked, devices, [each["request"] for each in results], driver)
    return results


def _items(asked: ClaimId, of: Mapping[str, Any], where: str, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The path and the object of each item of a list, which may be missing. Raises Refused."""
    for index, each in enumerate(_part(asked, of, where, key, list, [])):
        path = f"{where}.{key}[{index}]"
        if not isinstance(each, Mapping):
            raise _malformed(asked, path, "an object")
        yield path, each


def _part(asked: ClaimId, of: Mapping[str, Any], where: str, key: str, kind: type[T], otherwise: T | None = None) -> T:
    """A part of a claim. where: the path of the object that has the part. kind: the part's type.

    otherwise: for a missing part, without which it counts as one of another type. Raises Refused for another type.
    """
    value = of.get(key)
    if value is None:
        value = otherwise
    if not isinstance(value, kind):
        raise _malformed(asked, f"{where}.{key}".lstrip("."), _KINDS[kind])
    return value


def _malformed(asked: ClaimId, path: str, kind: str) -> Refused:
    return Refused(f"{asked}: is malformed in the API server's answer: {path} must be {kind}")


def _refuse_configuration(asked: ClaimId, devices: Mapping[str, Any], requests: Sequence[str], driver: str) -> None:
    """Refuse parameters for this driver, which knows none. Parameters for other requests or drivers are not ours."""
    for path, each in _items(asked, devices, "status.allocation.devices", "config"):
        opaque = _part(asked, each, path, "opaque", dict, {})
        if opaque.get("driver") != driver:
            continue
        # Without requests, the parameters are for all. A request's name stands for all of its subrequests.
        named = _part(asked, each, path, "requests", list, []) or requests
        for request in requests:
            if request in named or _base(request) in named:
                source = "the DeviceClass" if each.get("source") == "FromClass" else "the claim"
                raise Refused(
                    f"{asked}, request {_base(request)}: {source} has opaque parameters for the driver {driver}, which "
                    "knows none: remove them"
                )


def _key(result: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    return _base(result["request"]), result["pool"], result["device"], bool(result.get("adminAccess"))


def _base(request: str) -> str:
    """The request of a subrequest, whose name is ``request/subrequest``."""
    return request.partition("/")[0]


def require_free(planned: PreparedClaim, others: Collection[PreparedClaim]) -> None:
    """Raise Held if another claim has a device for itself that a planned one would get."""
    for device in planned.devices:
        name, excludes = device.resource, functools.partial(_excludes, device.device_id)
        holder = None if device.is_admin else _holder(planned.id, name, excludes, others)
        if holder is not None:
            raise Held(f"{planned.id}, request {device.request}, device {name}={device.device_id}", holder)


def _excludes(one: str, other: str) -> bool:
    """Whether two claims cannot have both: a share is one claim's, and a whole device leaves no share."""
    return one in devices_behind(other) or other in devices_behind(one)


def _keeps_out(offered: Offered) -> Callable[[str], bool]:
    """Whether a device or share that a claim has, by its id, keeps out all others from the one that is offered.

    A share that the declaration no longer has stands for any other, so that never more claims have the device.
    """
    declared = kubelet_ids(offered.resource, offered.device)

    def keeps_out(held: str) -> bool:
        return held == offered.listed_id or (offered.device.id in devices_behind(held) and held not in declared)

    return keeps_out


def _holder(
    asked: ClaimId, resource: str, keeps_out: Callable[[str], bool], others: Iterable[PreparedClaim]
) -> PreparedClaim | None:
    """The claim that has a device of the resource, or a share, for itself. keeps_out: tells it by its id.

    After a forced deletion, a scheduler may allocate a device again before its node has released it
    (kubernetes/kubernetes#141471).
    """
    for other in others:
        for device in other.devices:
            is_other = other.id.uid != asked.uid and device.resource == resource and not device.is_admin
            if is_other and keeps_out(device.device_id):
                return other
    return None


def _devices(
    asked: ClaimId, given: Sequence[_Given], env: Collection[str], real: Callable[[str], str]
) -> tuple[PreparedDevice, ...]:
    """The devices with their CDI names. env: the requests with variables."""
    devices: list[PreparedDevice] = []
    # The variables come with the first device of their request.
    due = set(env)
    for request, pool, name, is_admin, (resource, device, _place, listed_id, _reason) in given:
        names = resource.cdi_names(device)
        if request in due:
            due.remove(request)
            names.append(f"{CDI_KIND}={spec_device(asked, request)}")
        paths = tuple(sorted(map(real, device.host_paths)))
        devices.append(PreparedDevice(request, pool, name, resource.name, listed_id, tuple(names), paths, is_admin))
    return tuple(devices)


def _env(given: Sequence[_Given], by_container: bool) -> dict[str, dict[str, str]]:
    """The variables of each request, and of WHOLE. {index} counts the devices of a resource in the claim, each once.

    So a container that uses all requests of the claim gets a variable for each device. by_container: whether each
    container has requests of its own, whose devices are counted as if no other request were.
    """
    # Two shares of a device have one place.
    groups: dict[tuple[str, str], dict[int, Offered]] = {}
    for each in given:
        resource = each.offered.resource
        if resource.env or resource.joined_env:
            groups.setdefault((each.request, resource.name), {})[each.offered.place] = each.offered
    env: dict[str, dict[str, str]] = {}
    totals: dict[str, dict[int, Offered]] = {}
    for (request, name), by_place in groups.items():
        # In the order of the numbers.
        total = {} if by_container else totals.setdefault(name, {})
        total.update((place, by_place[place]) for place in sorted(by_place))
        _add(env, request, _variables(by_place, total))
    for name, total in totals.items():
        if any(each == name and len(by_place) < len(total) for (_request, each), by_place in groups.items()):
            joined = next(iter(total.values())).resource.joined_env
            _add(env, WHOLE, {key: value for key, value in _variables(total, total).items() if key in joined})
    return env


def _variables(by_place: Mapping[int, Offered], in_order: Iterable[int]) -> dict[str, str]:
    """The variables of devices of one resource, by place. in_order: the places in the order of {index}."""
    numbers = {place: number for number, place in enumerate(in_order)}
    places = sorted(by_place)
    devices = [by_place[place].device for place in places]
    return allocate_env(by_place[places[0]].resource, devices, [numbers[place] for place in places])


def _add(env: dict[str, dict[str, str]], request: str, variables: Mapping[str, str]) -> None:
    if variables:
        env.setdefault(request, {}).update(variables)


def spec_device(asked: ClaimId, request: str) -> str:
    """The name of the CDI device that a request of a claim, or WHOLE, has for itself."""
    return f"{asked.uid}-{request}"
