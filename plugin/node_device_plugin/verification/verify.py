"""Runs a verification in this order: the runtime, the kubelet, then a container for each resource."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..cdi import writer
from ..cdi.links import Links
from ..declaration import Configuration, Resource, foreign_cdi
from ..declaration.model import DEVICE_PLUGIN, DRA
from ..devices.discovery import Discovered, Discoverer
from ..devices.health import CdiNames
from ..kubelet import queries as kubelet_queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.losses import Loss, losses, unserved
from ..kubelet.pod_resources import PodResourcesError
from ..runtime import queries as runtime_queries
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer, in_thread
from ..support.directory_names import with_added
from ..support.version import version
from . import judging, proof_by_kubelet, resource_claims, restarts
from .device_plugins import DevicePlugins
from .expected import Expected, expected, said_by_plugin
from .judging import Judge
from .proof_record import Record, read_file
from .report import FAILED, IN_USE, UNPROVEN, Report, Row
from .scope import Runtime, Scope
from .static_pod import remove_leftovers
from .without_lists import NoKubelet, NoLists

#: Maximum seconds for the search for devices while it uses the CPU.
_BUSY = 60.0
#: Seconds between two reads of the kubelet's lists.
_LOOK = 0.2
#: The name of a runtime that does not answer.
_UNKNOWN = "unknown"


async def verify(configuration: Configuration, scope: Scope) -> Report:
    """Verify this node against ``configuration``. The report contains every problem, and none raises an exception."""
    links, names = Links(BoundedCalls(busy=_BUSY)), CdiNames(configuration.cdi_spec_dirs)
    problems: list[str] = []
    found = await _discovered(configuration, links, problems)
    resources = await _with_devices(configuration.resources, found, names)
    # Remove leftovers before reading the holders, because a leftover's pod still runs and holds a device.
    await _without_leftovers(scope, problems)
    proven_before = read_file(scope.record)
    record = Record(proven_before, " ".join(filter(None, [version(), scope.plugin])))
    runtime = await _runtime(scope, resources, problems)
    if runtime.name != _UNKNOWN:
        record.keep_only(resources, runtime.name)
    state = await _holders(configuration, scope, links, problems)
    wanted = [expected(each, found.get(each.name), state.held, names) for each in resources]
    judge, wanted = await _settled(configuration, scope, runtime, names, wanted)
    problems += [f"kubelet: {judge.problem}"] * bool(judge.problem)
    offers = [judge.offer(each) for each in wanted]
    without = await unserved(scope.kubelet_root, scope.runtime_socket, state, offers)
    lost = await losses(offers, state, without, configuration.checked_spec_dirs)
    rows, to_prove = _before_proofs(judge, wanted, lost, record if scope.unproven_only else None, runtime.name)
    outcomes = await judge.prove(resources, to_prove)
    judging.note(record, [each for each in resources if each.name in to_prove], runtime.name, outcomes)
    problems.extend(f"{row.resource}: {row.detail}" for row in rows if row.state == FAILED)
    for name, outcome in outcomes.items():
        problems.extend(f"{name}: in a container: {mismatch}" for mismatch in outcome.mismatches)
    rows = [judging.with_outcome(row, outcomes) for row in rows]
    if scope.invocation:
        problems += filter(None, [await in_thread(restarts.problem, scope.invocation)])
    warnings = [f"{resource.name}: {warning}" for resource in resources for warning in foreign_cdi.warnings(resource)]
    warnings += [f"{loss.resource}: {loss.text}" for loss in lost if not loss.fails]
    warnings += judge.warnings
    return Report(runtime.name, judge.kubelet, rows, problems, record.proven, proven_before, runtime.image, warnings)


async def _discovered(configuration: Configuration, links: Links, problems: list[str]) -> dict[str, Discovered]:
    """Discover the devices with the plugin's own code. Adds a problem for each method that does not answer."""
    offered = functools.partial(writer.offered, configuration.dynamic_cdi_dir)
    discoverer = Discoverer(links)
    found = await discoverer.discover(configuration.resources, offered, spec_dirs=configuration.cdi_spec_dirs)
    problems += ["{}: {}".format(*late) for late in discoverer.late.items()]
    return found


async def _with_devices(
    declared: Sequence[Resource], found: Mapping[str, Discovered], names: CdiNames
) -> list[Resource]:
    """The resources with their discovered devices, and with the nodes of other programs' CDI devices."""
    resources = [
        each._replace(devices=(*each.devices, *found[each.name].devices)) if each.name in found else each
        for each in declared
    ]
    needed = [name for resource in resources for device in resource.devices for name in resource.cdi_names(device)]
    await in_thread(names.read, needed)
    return [names.resolution.with_foreign_nodes(resource) for resource in resources]


async def _holders(
    configuration: Configuration, scope: Scope, links: Links, problems: list[str]
) -> kubelet_queries.Holders:
    places = with_added(configuration.cdi_spec_dirs, configuration.dynamic_cdi_dir)
    directory = configuration.kubelet_device_plugin_dir
    try:
        state = await kubelet_queries.holders(scope.kubelet_root, directory, places, links)
        return await kubelet_queries.with_claims(state, configuration.dynamic_cdi_dir)
    except (OSError, CheckpointError) as error:
        problems.append(f"cannot find out which pods hold devices: {error}")
        return kubelet_queries.Holders("none")


def _before_proofs(
    judge: Judge, wanted: Sequence[Expected], lost: Sequence[Loss], proven: Record | None, runtime: str
) -> tuple[list[Row], dict[str, Row]]:
    """The rows of all resources, and by resource the rows that need a proof.

    proven: the record whose proofs are not repeated; None to repeat every proof.
    """
    rows, to_prove = [], {}
    for each in wanted:
        row = judge.judge(each, [loss for loss in lost if loss.fails and loss.resource == each.resource.name])
        if row.state in (UNPROVEN, IN_USE) and not each.withheld:
            asked, row = row, judging.before_proof(row, each.resource, proven, runtime, with_annotations=True)
            if row == asked:
                to_prove[row.resource] = row
        rows.append(row)
    return rows, to_prove


async def _without_leftovers(scope: Scope, problems: list[str]) -> None:
    """Remove the static pods of killed proofs, and wait until their devices are free."""
    if not scope.static_pod_dir:
        return
    remove = functools.partial(remove_leftovers, scope.static_pod_dir)
    try:
        names = await BoundedCalls().call(Key("", "static pods"), remove)
    except NoAnswer as error:
        problems.append(f"cannot remove the static pod of a killed proof: {scope.static_pod_dir} {error}")
        return
    except OSError as error:
        problems.append(f"cannot remove the static pod of a killed proof: {error.filename}: {error.strerror}")
        return
    # Other checks report a runtime or a kubelet that does not answer.
    with contextlib.suppress(CriError, PodResourcesError):
        if names:
            async with CriClient(scope.runtime_socket) as cri:
                await asyncio.gather(*(proof_by_kubelet.gone(name, cri, scope) for name in names))


async def _runtime(scope: Scope, resources: Sequence[Resource], problems: list[str]) -> Runtime:
    try:
        state = await runtime_queries.runtime(scope.runtime_socket)
        image, no_image = (
            state["sandbox_image"],
            "the runtime has no sandbox image yet; set verification_image to another image",
        )
        if scope.image is not None:
            async with CriClient(scope.runtime_socket) as cri:
                image = scope.image if await cri.image(scope.image) else None
            no_image = (
                f"the node has no image {scope.image} (verification_image): pull it, because a proof pulls no image"
            )
    except CriError as error:
        problems.append(str(error))
        return Runtime(_UNKNOWN, None, False, str(error))
    name = "{name} {version}".format(**state)
    by_cdi = [resource.name for resource in resources if resource.uses_cdi]
    gives_cdi = bool(state["cdi"]["enabled"])
    if by_cdi and not gives_cdi:
        problems.append(_without_cdi(state, by_cdi))
    return Runtime(name, image, gives_cdi, "" if image else no_image)


def _without_cdi(state: Mapping[str, Any], by_cdi: Sequence[str]) -> str:
    """The sentence for a running runtime that injects no CDI devices, with the consequence for containers."""
    found = "off" if state["cdi"]["enabled"] is False else "nothing about CDI"
    fails = runtime_queries.fails_without_cdi(state["name"], state["version"])
    consequence = "could not be created with" if fails else "would start without"
    return "{} {}: expected CDI on, found {} in the running daemon: a container {} its devices of {}".format(
        state["name"],
        state["version"],
        found,
        consequence,
        ", ".join(by_cdi),
    )


async def _settled(
    configuration: Configuration, scope: Scope, runtime: Runtime, names: CdiNames, wanted: Sequence[Expected]
) -> tuple[Judge, list[Expected]]:
    """Wait until the kubelet's lists are as expected, at most for the scope's timeout.

    Returns the judge then, and what is expected by what the plugin says then.
    """
    deadline = time.monotonic() + scope.timeout
    while True:
        said = await said_by_plugin(configuration.kubelet_device_plugin_dir)
        asked = [each._replace(said=said.get(each.resource.name)) for each in wanted]
        judge = await _judge(configuration, scope, runtime, names, asked)
        if judge.is_settled(asked) or time.monotonic() > deadline:
            return judge, asked
        await asyncio.sleep(_LOOK)


async def _judge(
    configuration: Configuration, scope: Scope, runtime: Runtime, names: CdiNames, wanted: Sequence[Expected]
) -> Judge:
    """The APIs of the kubelet that give containers their devices now."""
    socket = os.path.join(scope.kubelet_root, kubelet_queries.POD_RESOURCES_SOCKET)
    try:
        listing = await kubelet_queries.listing(scope.kubelet_root, configuration.kubelet_device_plugin_dir)
    except PodResourcesError as error:
        if not os.path.exists(socket):
            return NoKubelet(runtime, scope, names)
        if error.is_limited:
            return NoLists(str(error), "the kubelet gets too many requests", "rate limited")
        problem = f"expected an answer on {socket}, found none in {scope.timeout:g} s"
        return NoLists(problem, "the kubelet does not answer", "not answering")
    except (OSError, CheckpointError) as error:
        return NoLists(str(error), "the kubelet's checkpoint cannot be read", "running")
    device_plugins = DevicePlugins(listing, configuration, runtime, scope)
    by_claims = [each for each in wanted if each.resource.api == DRA]
    if not by_claims:
        return device_plugins
    claims = await resource_claims.judge(listing, configuration.dra, by_claims, scope)
    return judging.ByApi({DEVICE_PLUGIN: device_plugins, DRA: claims})
