"""The command ``status``: the served devices, from the running plugin, and their holders, from the kubelet."""

from __future__ import annotations

import asyncio
import collections
import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..declaration.configuration_file import KubeletPlaces
from ..declaration.model import DEVICE_PLUGIN
from ..kubelet import losses
from ..kubelet import queries as kubelet_queries
from ..kubelet.losses import Loss, unserved
from ..kubelet.queries import HeldDevice, Holders
from ..status_api import client
from ..support.bounded_calls import in_thread
from ..support.tables import printable, table
from .runtime_service import cri_socket

_COLUMNS = ("RESOURCE", "DEVICE", "STATE", "HELD BY", "REASON")


class Status(NamedTuple):
    """The plugin's state and the devices' holders.

    plugin: the state from daemon.state; None if the plugin does not answer. problem: why the plugin does not answer.
    losses: lost devices; unknown, so none, if the plugin does not answer.
    """

    plugin: dict[str, Any] | None
    problem: str
    holders: Holders
    losses: Sequence[Loss] = ()

    @property
    def is_fine(self) -> bool:
        """Whether the plugin answers, is ready, did not refuse its configuration file, and lost no expected device."""
        if self.plugin is None or any(loss.fails for loss in self.losses):
            return False
        return self.plugin["ready"] and not self.plugin["configuration"]["problems"]

    def to_data(self) -> dict[str, Any]:
        """The status, ready for JSON."""
        lost = [loss._asdict() for loss in self.losses]
        return {"plugin": self.plugin, "problem": self.problem, **self.holders.to_data(), "losses": lost}

    def to_text(self) -> str:
        """The status as text."""
        columns = list(_COLUMNS)
        if self.plugin is None:
            lines = [printable(self.problem), ""]
            rows = [[each.resource, each.device, "", _holder(each), ""] for each in self.holders.held]
        else:
            resources = self.plugin["resources"]
            lines, rows = [*_head(self.plugin), ""], self._rows(resources)
            columns = _with_api(columns, rows, resources)
        if self.holders.source != "kubelet":
            where = "unknown" if self.holders.source == "none" else "from its checkpoint, which names pods by UID only"
            lines.insert(-1, f"no kubelet answers; holders are {where}")
        lost = [f"{loss.level}: {loss.resource}: {printable(loss.text)}" for loss in self.losses]
        served = self.plugin["resources"] if self.plugin else []
        # The rows show why a resource is not registered.
        troubled = [each for each in served if each["registered"] and each.get("problem")]
        lost += [f"warning: {each['name']}: {printable(each['problem'])}" for each in troubled]
        if not rows:
            return "\n".join([*lines, "no devices" if self.plugin else "no held devices are known", *lost])
        return "\n".join([*lines, table(columns, rows), *lost])

    def _rows(self, resources: list[dict[str, Any]]) -> list[list[str]]:
        holders: dict[tuple[str, str], list[str]] = {}
        for each in self.holders.held:
            holders.setdefault((each.resource, each.device), []).append(_holder(each))
        rows = []
        for resource in resources:
            state = "" if resource["registered"] else "not registered"
            problem = (resource.get("problem") if state else "") or ""
            for device in resource["devices"]:
                # A container that holds several shares of a device appears once, with the number of shares.
                by = collections.Counter(
                    name
                    for kubelet_id in device["kubelet_ids"]
                    for name in holders.get((resource["name"], kubelet_id), [])
                )
                held = ", ".join(name if count == 1 else "%s (%d)" % (name, count) for name, count in by.items())
                shown = state or device["state"]
                rows.append([resource["name"], device["id"], shown, held, device["reason"] or problem])
            # The plugin may be older than this command.
            known = {device["id"] for device in resource["devices"]}
            left_out = {name: why for name, why in resource.get("left_out", {}).items() if name not in known}
            for what, those in (("refused", resource["refused"]), ("left out", left_out)):
                rows += [[resource["name"], device_id, what, "", reason] for device_id, reason in those.items()]
            late = resource.get("late")
            if late or not (known or left_out or resource["refused"]):
                shown = state or ("searching" if late else "no devices")
                rows.append([resource["name"], "", shown, "", late or problem])
        return rows


async def status(kubelet: KubeletPlaces, runtime_socket: str | None = None) -> Status:
    """Ask the plugin and the kubelet, and the container runtime if containers may lack a device.

    runtime_socket: None for the running kubelet's socket. Raises CheckpointError and OSError.
    """
    # Ask both at the same time, so that two hanging programs cost only one timeout.
    (plugin, problem), holders = await asyncio.gather(
        _ask_plugin(kubelet.device_plugin_dir), kubelet_queries.holders(kubelet.root_dir, kubelet.device_plugin_dir)
    )
    holders = await kubelet_queries.with_claims(holders, kubelet.cdi_dir)
    if plugin is None:
        return Status(plugin, problem, holders)
    offers = losses.offers_of(plugin)
    if runtime_socket is None:
        runtime_socket = await in_thread(cri_socket, None)
    without = await unserved(kubelet.root_dir, runtime_socket, holders, offers)
    spec_dirs = plugin["configuration"].get("cdi_spec_dirs", ())
    return Status(plugin, problem, holders, await losses.losses(offers, holders, without, spec_dirs))


async def _ask_plugin(directory: str) -> tuple[dict[str, Any] | None, str]:
    try:
        return await client.ask(directory, "GET", "/status"), ""
    except client.NotAnswering as error:
        return None, str(error)


def _head(plugin: dict[str, Any]) -> list[str]:
    configuration = plugin["configuration"]
    since = datetime.datetime.fromtimestamp(plugin["started"], datetime.timezone.utc)
    lines = [
        "node-device-plugin {}, running since {}, configuration {}".format(
            plugin["version"], since.strftime("%Y-%m-%d %H:%M:%S UTC"), configuration["sha256"][:12]
        ),
        "ready" if plugin["ready"] else "not ready: {}".format("; ".join(plugin["not_ready"])),
    ]
    if configuration["problems"]:
        lines.append("{} is refused, and an older configuration is in use:".format(configuration["path"]))
        lines.extend("  " + problem for problem in configuration["problems"])
    return lines


def _with_api(columns: list[str], rows: list[list[str]], resources: list[dict[str, Any]]) -> list[str]:
    """The columns, with the API of each resource if a resource has another one than device plugins.

    rows: beginning with a resource's name, to which the API is added. The plugin may be older than this command.
    """
    apis = {resource["name"]: resource.get("api", DEVICE_PLUGIN) for resource in resources}
    if set(apis.values()) <= {DEVICE_PLUGIN}:
        return columns
    for row in rows:
        row.insert(1, apis[row[0]])
    return [columns[0], "API", *columns[1:]]


def _holder(held: HeldDevice) -> str:
    by = f" (claim {held.claim})" if held.claim else ""
    return "/".join(part for part in (held.namespace, held.pod, held.container) if part) + by
