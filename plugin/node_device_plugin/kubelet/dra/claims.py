"""Plans what a ResourceClaim gets of this driver's devices. Reads and writes nothing.

Fields of a claim: k8s.io/api/resource/v1, ResourceClaim. What a kubelet expects: k8s.io/kubelet, pkg/apis/dra/v1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, TypeVar

from ...declaration import Device, Resource
from ...declaration.env import allocate_env
from ...devices.reason import told
from . import UID

T = TypeVar("T")

#: The types of the parts of a claim, for messages.
_KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
#: The kind of the CDI devices that exist only for one claim.
CDI_KIND = "nodedevices.kubernetes/claim"


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
    """A device that a claim has. request: without a subrequest. pool, name: in the ResourceSlices.

    cdi_names: as answered to the kubelet. paths: of the host, of the device's nodes and bind mounts. is_admin: whether
    other claims may have the device, too.
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


class PreparedClaim(NamedTuple):
    """A claim and all that it has. driver: which prepared it. env: the variables of each request that sets any."""

    id: ClaimId
    driver: str
    devices: tuple[PreparedDevice, ...]
    env: Mapping[str, Mapping[str, str]]

    def spec_devices(self) -> dict[str, dict[str, Any]]:
        """The CDI devices that exist only for this claim, by name, each with its edits."""
        return {
            _spec_device(self.id, request): {"env": [f"{name}={value}" for name, value in variables.items()]}
            for request, variables in self.env.items()
        }


class Held(Refused):
    """A claim cannot be prepared, because ``holder`` still has one of its devices."""

    def __init__(self, where: str, holder: PreparedClaim) -> None:
        super().__init__(f"{where}: is still prepared for {holder.id}")
        self.where, self.holder = where, holder


class Offered(NamedTuple):
    """A device of this driver. place: in its resource. reason: why no container can get it now; None if one can."""

    resource: Resource
    device: Device
    place: int
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
        where += f" ({offered.resource.name}={offered.device.id})"
        if offered.reason is not None:
            raise Refused(f"{where}: {told(offered.reason)}")
        holder = None if is_admin else _holder(asked, (offered.resource.name, offered.device.id), others)
        if holder is not None:
            raise Held(where, holder)
        given.append(_Given(request, pool, name, is_admin, offered))
    env = _env(given)
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
        key = device.resource, device.device_id
        holder = None if device.is_admin else _holder(planned.id, key, others)
        if holder is not None:
            raise Held(f"{planned.id}, request {device.request}, device {'='.join(key)}", holder)


def _holder(asked: ClaimId, key: tuple[str, str], others: Iterable[PreparedClaim]) -> PreparedClaim | None:
    """The claim that has a device for itself. key: the names of resource and device.

    After a forced deletion, a scheduler may allocate a device again before its node has released it
    (kubernetes/kubernetes#141471).
    """
    for other in others:
        for device in other.devices:
            if other.id.uid != asked.uid and not device.is_admin and (device.resource, device.device_id) == key:
                return other
    return None


def _devices(
    asked: ClaimId, given: Sequence[_Given], env: Collection[str], real: Callable[[str], str]
) -> tuple[PreparedDevice, ...]:
    """The devices with their CDI names. env: the requests with variables."""
    devices: list[PreparedDevice] = []
    # The variables come with the first device of their request.
    due = set(env)
    for request, pool, name, is_admin, (resource, device, _place, _reason) in given:
        names = resource.cdi_names(device)
        if request in due:
            due.remove(request)
            names.append(f"{CDI_KIND}={_spec_device(asked, request)}")
        paths = tuple(sorted(map(real, device.host_paths)))
        devices.append(PreparedDevice(request, pool, name, resource.name, device.id, tuple(names), paths, is_admin))
    return tuple(devices)


def _env(given: Sequence[_Given]) -> dict[str, dict[str, str]]:
    """The variables of each request. {index} counts the devices of a resource in the claim.

    So a container that uses all requests of the claim gets a variable for each device.
    """
    groups: dict[tuple[str, str], list[Offered]] = {}
    for each in given:
        groups.setdefault((each.request, each.offered.resource.name), []).append(each.offered)
    env: dict[str, dict[str, str]] = {}
    counts: Counter[str] = Counter()
    for (request, name), offered in groups.items():
        in_order = sorted(offered, key=lambda each: each.place)
        variables = allocate_env(in_order[0].resource, [each.device for each in in_order], counts[name])
        counts[name] += len(offered)
        if variables:
            env.setdefault(request, {}).update(variables)
    return env


def _spec_device(asked: ClaimId, request: str) -> str:
    return f"{asked.uid}-{request}"
