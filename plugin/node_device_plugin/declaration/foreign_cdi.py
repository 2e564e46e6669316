"""Rules for devices of other programs' CDI specs, and for devices that give a container nothing."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Sequence

from .model import Resource
from .problems import Problem

#: The variable by which images ask NVIDIA's legacy hook for GPUs; a spec of nvidia-ctk sets it to "void".
_LEGACY = "NVIDIA_VISIBLE_DEVICES"


def problems(resource: Resource, where: str, refused: Collection[str]) -> Iterator[Problem]:
    """Every problem of one resource. refused: fields with a known problem."""
    for kind in sorted(set(kinds(resource))):
        if resource.has_spec and resource.cdi_kind == kind:
            message = f"{kind} is the kind of another program's specs, which the resource's own edits would replace"
            yield Problem(where + ".cdi_kind", message + ": set another cdi_kind")
        if kind.startswith("nvidia.com/"):
            message = "has no effect: the CDI spec of nvidia.com sets it to void, so that the legacy hook does nothing"
            for key in ("env", "joined_env"):
                if _LEGACY in getattr(resource, key):
                    yield Problem(f"{where}.{key}.{_LEGACY}", message + "; leave it out")
            edited = [(where, resource.container_edits)]
            edited += [(place, device.container_edits) for place, device in resource.placed_devices(where)]
            for place, edits in edited:
                for position, assignment in enumerate(edits.env):
                    if assignment.partition("=")[0] == _LEGACY:
                        message = (
                            "would replace void, by which the CDI spec of nvidia.com keeps the legacy hook from giving "
                            "the container more GPUs; leave it out"
                        )
                        yield Problem(f"{place}.container_edits.env[{position}]", message)
    for place, device in resource.placed_devices(where):
        for name, count in collections.Counter(device.cdi_devices).items():
            if count > 1:
                yield Problem(place + ".cdi_devices", f"{name} is given twice")
        is_judged = device.id and not any(field.startswith((place, where + ".env")) for field in refused)
        if is_judged and not (device.has_edits or device.cdi_devices or resource.gives_anything):
            message = "gives a container nothing: it has no nodes, edits, cdi_devices or env; did you mean cdi_devices?"
            yield Problem(place, message)


def warnings(resource: Resource) -> Iterator[str]:
    """What a verification must say of variables that give devices by NVIDIA's legacy hook, without CDI."""
    if _LEGACY in resource.env or _LEGACY in resource.joined_env:
        yield (
            f"a container whose image sets {_LEGACY} gets GPUs from NVIDIA's legacy hook without a request: offer the "
            "devices by CDI instead (discover.cdi), and turn the hook off"
        )


def kinds(resource: Resource) -> Iterator[str]:
    """The CDI kinds of other programs whose devices the resource offers."""
    if resource.discover.cdi:
        yield resource.discover.cdi.kind
    for device in resource.devices:
        yield from (name.partition("=")[0] for name in device.cdi_devices)


def required(resources: Iterable[Resource]) -> dict[str, str]:
    """The names in other programs' specs that required devices need, each with its resource and device."""
    return {
        name: f"{resource.name}={device.id}"
        for resource in resources
        for device in resource.devices
        for name in device.cdi_devices
        if device.required
    }


def repetition_problems(placed: Sequence[tuple[str, Resource]]) -> Iterator[Problem]:
    """Problems with CDI devices that two of our devices offer: two containers would get them at once.

    placed: the resources, each with the path of its field.
    """
    givers: dict[str, str] = {}
    own = {resource.cdi_kind: resource.name for _where, resource in placed if resource.has_spec}
    discovered = {resource.discover.cdi.kind: resource.name for _where, resource in placed if resource.discover.cdi}
    for where, resource in placed:
        discoverer = discovered.get(resource.cdi_kind, resource.name)
        if resource.has_spec and discoverer != resource.name:
            message = f"{resource.cdi_kind} is the kind of another program's specs, where {discoverer} finds devices"
            yield Problem(where + ".cdi_kind", message + ": set another cdi_kind")
        for place, device in resource.placed_devices(where):
            for name in device.cdi_devices:
                giver = own.get(name.partition("=")[0], resource.name)
                if giver != resource.name:
                    yield Problem(place + ".cdi_devices", f"{name} is a device of {giver}, which alone can offer it")
            # Several devices may give the same control device, each beside a device of its own.
            if device.cdi_devices and all(name in givers for name in device.cdi_devices):
                first = device.cdi_devices[0]
                yield Problem(place + ".cdi_devices", f"{first} is offered already, as {givers[first]}")
            for name in device.cdi_devices:
                givers.setdefault(name, place)
