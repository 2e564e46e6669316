"""The specs of several resources at once, in one directory, with links as they are now."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Optional

from node_device_plugin.cdi import writer
from node_device_plugin.cdi.links import Links, node_paths
from node_device_plugin.cdi.writer import Written
from node_device_plugin.declaration import Resource
from node_device_plugin.declaration.device_plugin_api import devices_behind


def links_of(resources: Sequence[Resource]) -> Links:
    """What the device nodes of these resources lead to now."""
    links = Links()
    asyncio.run(links.look_at(node_paths(resources)))
    return links


def write(
    resources: Sequence[Resource],
    directory: str,
    written: Optional[dict[str, Optional[Written]]] = None,
    kept: Collection[str] = (),
) -> dict[str, str]:
    """Gives the resources whose spec is not written, each with the reason. written: from call to call."""
    known = {} if written is None else written
    problems = {}
    for resource in resources:
        try:
            before = known.get(resource.name)
            known[resource.name] = writer.write(resource, links_of([resource]), directory, before, kept)
        except writer.NotWritten as error:
            problems[resource.name] = str(error)
    return problems


def prune(resources: Sequence[Resource], held: Sequence[str], directory: str) -> list[str]:
    """held: the kubelet's ids."""
    ids = {device_id for each in held for device_id in devices_behind(each)}
    return writer.prune(resources, links_of(resources), ids, directory)


def orphans(resources: Sequence[Resource], directory: str) -> list[str]:
    return writer.prune(resources, links_of(resources), (), directory, dry_run=True)
