"""Checks one CDI spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..declaration import Problem, cdi, names
from .fields import SPEC, Crash, shape_problems

#: Every version that readers accept; any other version, such as 0.1.0 or 0.2.0, fails the load.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
#: From this version on, readers no longer know two fields of Intel RDT (specs-go/config.go of v1.0.1 and v1.1.0).
_WITHOUT_CMT = (1, 1, 0)
#: From this version on, readers allow "/" as a closID (pkg/cdi/container-edits.go of v1.0.1 and v1.1.0).
_WITH_ROOT_CLOS = (1, 1, 0)


def spec_problems(spec: Any, accepted: str | None = None) -> Iterator[Problem]:
    """Every problem for which a runtime would refuse ``spec`` or crash.

    accepted: the highest CDI version that this node's runtime accepts, if known.
    """
    wrong = list(shape_problems(spec, SPEC, ""))
    yield from wrong
    if isinstance(spec, dict):
        kind = spec.get("kind")
        if isinstance(kind, str) and kind:
            message = names.cdi_kind_problem(kind)
            if message:
                yield (Crash if names.crashing_part(kind) else Problem)("kind", message)
        if isinstance(spec.get("cdiVersion"), str):
            yield from _version_problems(spec, accepted, content=not wrong)
    if wrong:
        # The rules below need values of the right type.
        return
    reader = max(cdi.version_tuple(spec["cdiVersion"]), cdi.version_tuple(accepted or ""))
    with_root = cdi.version_tuple(accepted or VERSIONS[-1]) >= _WITH_ROOT_CLOS
    if not spec["devices"]:
        yield Problem("devices", "is empty: a CDI spec needs at least one device")
    seen: dict[str, int] = {}
    for position, device in enumerate(spec["devices"]):
        edits = device["containerEdits"]
        where = "devices[%d] (%s)" % (position, device["name"])
        message = names.cdi_device_problem(device["name"])
        if message:
            yield Problem(where + ".name", message)
        first = seen.setdefault(device["name"], position)
        if first != position:
            yield Problem(where + ".name", "is already the name of devices[%d]: rename one" % first)
        if not any(value or (key == "intelRdt" and value is not None) for key, value in edits.items()):
            yield Problem(where + ".containerEdits", "is empty: CDI refuses a device without edits")
        yield from _edit_problems(edits, where + ".containerEdits", reader, with_root)
    yield from _edit_problems(spec.get("containerEdits") or {}, "containerEdits", reader, with_root)


def _version_problems(spec: Mapping[str, Any], accepted: str | None, content: bool) -> Iterator[Problem]:
    version = spec["cdiVersion"]
    if version.removeprefix("v") not in VERSIONS:
        yield Problem(
            "cdiVersion", "{!r} is not a CDI version; known versions: {}".format(version, ", ".join(VERSIONS))
        )
        return
    is_too_new = accepted is not None and cdi.version_tuple(version) > cdi.version_tuple(accepted)
    if is_too_new:
        yield Problem("cdiVersion", f"is {version}, but this runtime accepts versions up to {accepted}")
    if not content:
        return
    needed = [each for each in cdi.features(spec) if cdi.version_tuple(each.since) > cdi.version_tuple(version)]
    for feature in needed:
        message = f"is {version}, but must be at least {feature.since} for {feature.name} ({feature.where})"
        yield Problem("cdiVersion", message)
    for feature in cdi.refused_features(spec, accepted) if accepted and not is_too_new else ():
        if feature not in needed:
            why = f"this runtime accepts CDI up to {accepted}, and refuses the whole file for the field: remove it"
            yield Problem(feature.where, f"has an empty field for {feature.name} (CDI {feature.since}): {why}")


def _edit_problems(edits: Mapping[str, Any], where: str, reader: tuple[int, ...], with_root: bool) -> Iterator[Problem]:
    """The problems of container edits.

    reader: the highest CDI version that may read the spec. with_root: whether "/" is allowed as a closID.
    """
    rdt = edits.get("intelRdt") or {}
    if reader >= _WITHOUT_CMT:
        for key in sorted({"enableCMT", "enableMBM"} & set(rdt)):
            place = f"{where}.intelRdt.{key}"
            yield Problem(place, "was removed in CDI 1.1.0, whose readers refuse the whole file: remove the field")
    yield from _assignment_problems(edits, where)
    for position, node in enumerate(edits.get("deviceNodes") or []):
        if set(node.get("permissions") or "") - set("rwm"):
            place = "%s.deviceNodes[%d].permissions" % (where, position)
            yield Problem(place, "must contain only r, w and m, not {!r}".format(node["permissions"]))
    for key in ("hostInterfaceName", "name"):
        names_seen: dict[str, int] = {}
        for position, net in enumerate(edits.get("netDevices") or []):
            if names_seen.setdefault(net[key], position) != position:
                place = "%s.netDevices[%d].%s" % (where, position, key)
                yield Problem(place, "is already used by netDevices[%d]" % names_seen[net[key]])
    clos = rdt.get("closID") or ""
    is_name = clos not in (".", "..") and not set(clos) & set("/\n") and len(clos.encode()) < 4096
    if not is_name and not (clos == "/" and with_root):
        allowed = "'/' or the name of one directory" if with_root else "the name of one directory (before CDI 1.1.0)"
        yield Problem(where + ".intelRdt.closID", f"must be {allowed}, not {clos!r}")
    for position, hook in enumerate(edits.get("hooks") or []):
        yield from _assignment_problems(hook, "%s.hooks[%d]" % (where, position))


def _assignment_problems(part: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for position, assignment in enumerate(part.get("env") or []):
        name, equals, _value = assignment.partition("=")
        if not (name and equals):
            # The text may be a secret.
            yield Problem("%s.env[%d]" % (where, position), "must have the form NAME=value")
