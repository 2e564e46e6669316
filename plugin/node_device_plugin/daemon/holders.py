"""Asks every frontend, and another instance of the plugin, which devices containers hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..declaration.model import DEVICE_PLUGIN
from ..devices.holdings import Holding
from ..devices.scanner import DeviceScanner
from ..kubelet.device_plugin.ids import ListedId
from ..kubelet.frontend import Frontend, Held, HoldersUnknown
from ..status_api import client
from ..support.cancel_safe import result_within
from ..support.directory_names import with_added
from ..telemetry.logs import Log, Tries

log = Log(__name__)

#: Maximum seconds for an answer of the other instance.
_ANSWER = 2.0
#: The holder's name for each device that another instance offers.
ANOTHER_INSTANCE = "another instance of the plugin"


class Answer(NamedTuple):
    """What containers hold. question: see Given.ask. held: by API."""

    question: int
    holdings: Sequence[Holding]
    held: Mapping[str, Held]


class Holders:
    """Finds out what containers hold. frontends: by their API."""

    def __init__(self, scanner: DeviceScanner, frontends: Mapping[str, Frontend]) -> None:
        self._scanner = scanner
        self._frontends = frontends
        #: Failures are logged once a change: of the questions to the kubelet, and to another instance.
        self._asking, self._asking_other = Tries(log), Tries(log)

    async def ask(self, own: Collection[str]) -> Answer | None:
        """The holdings of containers. If they are unknown, logs the reason and returns None.

        own: the names of all resources that this process has ever served.
        """
        question = self._scanner.given.ask()
        try:
            held = await self.held(own)
        except HoldersUnknown as error:
            self._asking.failed(logging.WARNING, "cannot find out which devices pods hold", error=error)
            return None
        self._asking.went_well()
        holdings = [each for of_api in held.values() for each in of_api.holdings]
        if not self._scanner.writes:
            holdings += await self._offered_by_another()
        return Answer(question, holdings, held)

    async def held(self, own: Collection[str]) -> dict[str, Held]:
        """What containers hold, by API. Raises HoldersUnknown."""
        configuration = self._scanner.configuration
        specs = configuration.checked_spec_dirs or with_added(DEFAULT_DIRECTORIES, configuration.dynamic_cdi_dir)
        # A thread may change the record now, and a list is made in one step.
        ours = {*own, *(resource for resource, _device_id in list(self._scanner.given.record))}
        return {api: await frontend.held(ours, specs) for api, frontend in self._frontends.items()}

    async def _offered_by_another(self) -> list[Holding]:
        """The devices that the leader offers; its configuration may use other names for them."""
        device_plugin_dir = self._scanner.configuration.kubelet_device_plugin_dir
        try:
            state = await result_within(client.ask(device_plugin_dir, "GET", "/status"), _ANSWER)
        except (client.NotAnswering, asyncio.TimeoutError) as error:
            why = str(error) or f"no answer in {_ANSWER:g} s"
            self._asking_other.failed(
                logging.WARNING, "cannot find out which devices the other instance offers under other names", error=why
            )
            return []
        self._asking_other.went_well()
        # Only instances from before DRA tell no API.
        devices = [
            (resource["name"], resource.get("api", DEVICE_PLUGIN), device)
            for resource in state["resources"]
            for device in resource["devices"]
        ]
        await self._scanner.links.look_at(path for _name, _api, device in devices for path in device["host_paths"])
        return [
            Holding(
                ANOTHER_INSTANCE,
                name,
                ListedId(device["kubelet_ids"][0]),
                frozenset(map(self._scanner.links.real, device["host_paths"])),
                is_share=len(device["kubelet_ids"]) > 1,
                api=api,
            )
            for name, api, device in devices
            if device["kubelet_ids"]
        ]
